// What the host sends out for a sandbox, seen on the wire.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "casemate/egress/gateway.h"
#include "casemate/egress/gateway_test.h"
#include "tests/support/name_server.h"
#include "tests/support/own_network.h"
#include "tests/support/packet_capture.h"

namespace casemate {
namespace {

TEST(GatewayCapture, NothingLeavesButWhatIsAllowedAndNoNameIsAskedButListedOnes) {
  if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
  PacketCapture capture;
  const NameServer names(
      {{"allowed.test", kPublicIpv4}, {"inside.test", "127.0.0.1"}, {"denied.test", kOtherIpv4}});
  const Origin origin(kPublicIpv4, 0, echo);
  const Origin other(kOtherIpv4, origin.port(), echo);
  EgressOptions options;
  for (const char* host : {"allowed.test", "inside.test", "gone.test"}) {
    options.allow.push_back(HostPattern::parse(fmt::format("{}:{}", host, origin.port())));
  }
  EgressGateway gateway(options);  // with this machine's own resolver
  const std::string address = sys::bind_to_fresh_name(gateway.socket());
  gateway.serve();

  const Door allowed(address);
  ASSERT_EQ(allowed.code("allowed.test", origin.port()), EgressCode::opened);
  allowed.send("hello");
  EXPECT_EQ(allowed.read(5), "hello");
  EXPECT_EQ(Door(address).code("inside.test", origin.port()), EgressCode::address_refused);
  EXPECT_EQ(Door(address).code("gone.test", origin.port()), EgressCode::unresolvable);
  for (const char* host : {"denied.test", "secret-in-a-name.denied.test", kOtherIpv4, "2001:db8::9",
                           "::1", "127.0.0.1", "169.254.169.254", "0x7f.1"}) {
    EXPECT_NE(Door(address).code(host, origin.port()), EgressCode::opened) << host;
  }
  EXPECT_EQ(Door(address).code("allowed.test", 22), EgressCode::not_on_list);
  gateway.close();

  const std::string control = send_control_packet();
  ASSERT_TRUE(capture.read_until(control))
      << "the capture saw no packet that was there: it proves nothing";
  const auto& seen = capture.destinations();
  ASSERT_TRUE(seen.contains(fmt::format("tcp {}:{}", kPublicIpv4, origin.port())))
      << "nor the flow that was";
  ASSERT_TRUE(seen.contains("udp 127.0.0.1:53"));
  for (const std::string& destination : seen) {
    // Answers go to ports of this side's choice at the addresses that it spoke from.
    const bool answer = destination.starts_with("udp 127.0.0.1:") ||
                        destination.starts_with(fmt::format("tcp {}:", kPublicIpv4));
    EXPECT_TRUE(answer || destination == control) << destination;
  }
  EXPECT_EQ(other.connections(), 0);
  const std::vector<std::string> asked = names.asked();
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()),
            (std::set<std::string>{"allowed.test", "gone.test", "inside.test"}));
}

// A search list of the host's would lead a name that is not there to one that nobody listed.
TEST(GatewayCapture, NoNameIsAskedForBelowTheHostsOwnDomains) {
  if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
  OwnNetwork::write_resolv_conf(
      "nameserver 127.0.0.1\nsearch corp.test\noptions timeout:10 attempts:1 ndots:5\n");
  const NameServer names(
      {{"gone.test.corp.test", kPublicIpv4}, {"intranet.corp.test", kPublicIpv4}});
  EgressOptions options;
  for (const char* host : {"gone.test", "intranet"})
    options.allow.push_back(HostPattern::parse(host));
  EgressGateway gateway(options);
  const std::string address = sys::bind_to_fresh_name(gateway.socket());
  gateway.serve();
  for (const char* host : {"gone.test", "intranet"}) {
    EXPECT_EQ(Door(address).code(host, 80), EgressCode::unresolvable) << host;
  }
  gateway.close();
  const std::vector<std::string> asked = names.asked();
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()),
            (std::set<std::string>{"gone.test", "intranet"}));
  OwnNetwork::write_resolv_conf(OwnNetwork::kResolvConf);
}

}  // namespace
}  // namespace casemate
