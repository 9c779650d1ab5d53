#include "casemate/egress/gateway.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>

#include "casemate/egress/client_hello_test.h"
#include "casemate/egress/gateway_fixture_test.h"

namespace casemate {
namespace {

using namespace std::string_literals;
using namespace std::chrono_literals;

const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

TEST_F(Gateway, ReachesANameOfTheListByAnAddressThatItHas) {
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.ask("A.Test.", origin.port()), EgressAnswer{});
  client.send("hello");
  EXPECT_EQ(client.read(5), "hello");
  client.end_sending();
  EXPECT_EQ(client.read_all(), "");
  const auto all = records();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0], (EgressRecord{"a.test", origin.port(), EgressDecision::allowed,
                                  fmt::format("allowed by a.test:{}", origin.port()), 5, 5}));
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_EQ(log_[0], fmt::format("egress of call c0ffee: a.test port {0} (transparent): allowed: "
                                 "allowed by a.test:{0}; 5 bytes out, 5 in",
                                 origin.port()));
  EXPECT_EQ(names_.asked, std::vector{"a.test"s});
}

TEST_F(Gateway, ReachesAnIpv6AddressAlike) {
  const Origin origin(kPublicIpv6, 0, echo);
  names_.answers["six.test"] = {{kPublicIpv6}};
  allow(fmt::format("six.test:{}", origin.port()));
  allow(fmt::format("[{}]:{}", kPublicIpv6, origin.port()));
  serve();
  for (const std::string host : {"six.test", kPublicIpv6}) {
    const Door client = door();
    ASSERT_EQ(client.code(host, origin.port()), EgressCode::opened) << host;
    client.send("hello");
    EXPECT_EQ(client.read(5), "hello");
  }
}

// EG-02: neither a connection nor a look-up.
TEST_F(Gateway, AHostThatIsNotListedIsNeitherResolvedNorDialled) {
  const Origin origin(kPublicIpv4, 0, echo);
  names_.answers["denied.test"] = {{kPublicIpv4}};
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const auto answer = door().ask("denied.test", origin.port());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, EgressCode::not_on_list);
  EXPECT_NE(answer->sentence.find("policy"), std::string::npos);
  EXPECT_EQ(door().code(kPublicIpv4, origin.port()), EgressCode::not_on_list) << "not by address";
  EXPECT_EQ(door().code("a.test", 22), EgressCode::not_on_list);
  EXPECT_EQ(door().code("127.1", 443), EgressCode::malformed);
  const auto all = records();
  EXPECT_EQ(origin.connections(), 0);
  EXPECT_TRUE(names_.asked.empty());
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].decision, EgressDecision::denied);
  EXPECT_EQ(all[0].reason, "not on the list");
  EXPECT_EQ(all[3].host, "127.1");
}

// EG-16
TEST_F(Gateway, ANameThatLeadsInsideIsNotDialled) {
  const Origin everywhere("0.0.0.0", 0, echo);
  for (const char* inside : {"127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1",
                             "64:ff9b::7f00:1", "0.0.0.0"}) {
    names_.answers["a.test"] = {{inside}};
    options_.allow.clear();
    allow(fmt::format("a.test:{}", everywhere.port()));
    serve();
    const auto answer = door().ask("a.test", everywhere.port());
    ASSERT_TRUE(answer) << inside;
    EXPECT_EQ(answer->code, EgressCode::address_refused) << inside;
    EXPECT_EQ(records().at(0).decision, EgressDecision::denied);
    EXPECT_NE(records().at(0).reason.find(inside), std::string::npos) << records().at(0).reason;
  }
  EXPECT_EQ(everywhere.connections(), 0);
}

// EG-16: a second answer that differs (TTL 0) never comes to bear on a connection.
TEST_F(Gateway, TheAddressThatWasCheckedIsTheOneThatIsDialled) {
  const Origin origin(kPublicIpv4, 0, echo);
  const Origin inside("127.0.0.1", origin.port(), echo);
  names_.answers["a.test"] = {{kPublicIpv4}, {"127.0.0.1"}};
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  expect_echo("a.test", origin.port());
  EXPECT_EQ(names_.asked.size(), 1U);
  EXPECT_EQ(door().code("a.test", origin.port()), EgressCode::address_refused);
  EXPECT_EQ(names_.asked.size(), 2U);
  EXPECT_EQ(origin.connections(), 1);
  EXPECT_EQ(inside.connections(), 0);
}

TEST_F(Gateway, OfAMixedAnswerOnlyThePublicAddressesAreTried) {
  const Origin inside("127.0.0.1", 0, echo);
  const Origin origin(kPublicIpv4, inside.port(), echo);
  names_.answers["a.test"] = {{"127.0.0.1", "::1", kPublicIpv4}};
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  expect_echo("a.test", origin.port());
  EXPECT_EQ(inside.connections(), 0);
  EXPECT_EQ(origin.connections(), 1);
}

TEST_F(Gateway, AnAddressThatTheOperatorWroteIsDialledWhereverItLeads) {
  const Origin inside("127.0.0.1", 0, echo);
  allow(fmt::format("127.0.0.1:{}", inside.port()));
  serve();
  EXPECT_EQ(door().code("127.0.0.1", inside.port()), EgressCode::opened);
  EXPECT_EQ(door().code("::ffff:127.0.0.1", inside.port()), EgressCode::not_on_list);
  EXPECT_TRUE(names_.asked.empty());
}

TEST_F(Gateway, TriesTheNextAddressWhenOneDoesNotAnswer) {
  const Origin origin(kPublicIpv4, 0, echo);
  names_.answers["a.test"] = {{kOtherIpv4, kPublicIpv4}};
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  EXPECT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  client.send("x");
  EXPECT_EQ(client.read(1), "x");
}

TEST_F(Gateway, SaysWhyNobodyWasReached) {
  names_.answers["none.test"] = {{}};
  for (const char* host : {"a.test:9", "gone.test:9", "none.test:9"}) allow(host);
  serve();
  const auto refused = door().ask("a.test", 9);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, EgressCode::unreachable);
  EXPECT_NE(refused->sentence.find("Connection refused"), std::string::npos);
  EXPECT_EQ(door().code("gone.test", 9), EgressCode::unresolvable);
  EXPECT_EQ(door().code("none.test", 9), EgressCode::unresolvable);
  const auto all = records();
  EXPECT_EQ(all.at(0).reason, "allowed by a.test:9; not connected: Connection refused");
  EXPECT_EQ(all.at(0).decision, EgressDecision::allowed);
  EXPECT_EQ(all.at(1).reason, "allowed by gone.test:9; not resolved: no such name");
}

// -- Bytes -------------------------------------------------------------------------------------

// More than any buffer holds, both ways at once, with each side's end by itself.
TEST_F(Gateway, EachDirectionEndsByItself) {
  const std::string out(3'000'000, 'o');
  const std::string in(5'000'000, 'i');
  std::promise<std::string> heard;
  const Origin origin(kPublicIpv4, 0, [&](const Stream& stream) {
    heard.set_value(stream.read_all());
    stream.send(in);
  });
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  client.send(out);
  client.end_sending();
  EXPECT_TRUE(heard.get_future().get() == out) << "before the origin said anything";
  EXPECT_TRUE(client.read_all() == in) << "after the client had ended";
  const auto all = records();
  EXPECT_EQ(all.at(0).bytes_out, out.size());
  EXPECT_EQ(all.at(0).bytes_in, in.size());
}

TEST_F(Gateway, TheOriginsEndLeavesTheOtherDirectionOpen) {
  std::promise<std::string> heard;
  const Origin origin(kPublicIpv4, 0, [&](const Stream& stream) {
    stream.send("greeting");
    stream.end_sending();
    heard.set_value(stream.read_all());
  });
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read_all(), "greeting");
  client.send("still here");
  client.end_sending();
  EXPECT_EQ(heard.get_future().get(), "still here");
}

TEST_F(Gateway, ADirectionThatNobodyReadsDoesNotHoldTheOtherOrOthers) {
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door deaf = door();
  ASSERT_EQ(deaf.code("a.test", origin.port()), EgressCode::opened);
  // Until every buffer on the way there and back is full.
  const std::string piece(1 << 16, 'x');
  while (::send(deaf.fd(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    pollfd entry{deaf.fd(), POLLOUT, 0};
    if (poll(&entry, 1, 200) == 0) break;
  }
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  client.send("hello");
  EXPECT_EQ(client.read(5), "hello");
}

TEST_F(Gateway, ARequestMayComeInPiecesWithTheTunnelsFirstBytesBehindIt) {
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const std::string frame =
      encode_egress(EgressRequest{EgressDoor::socks, "a.test", origin.port()});
  const Door slow = door();
  for (const char byte : frame) slow.send({&byte, 1});
  EXPECT_EQ(slow.answer(), EgressAnswer{});
  const Door eager = door();
  EXPECT_EQ(eager.ask("a.test", origin.port(), "first"), EgressAnswer{});
  EXPECT_EQ(eager.read(5), "first");
}

TEST_F(Gateway, WhatIsNoRequestIsRefused) {
  allow("a.test");
  serve();
  for (const std::string& bytes :
       {"\x00\x00"s, "\xff\xff"s, "\x06\x00\x02\x00\x50\x00\x01\x61"s, "\x01\x00\x01"s,
        "GET / HTTP/1.1\r\n\r\n"s + std::string(20'000, 'x')}) {
    const Door client = door();
    client.send(bytes);
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->code, EgressCode::malformed);
    EXPECT_EQ(client.read_all(), "");
  }
  EXPECT_EQ(records().size(), 5U);
}

TEST_F(Gateway, NothingOfThisProcesssEnvironmentHasAPartInIt) {
  const Origin origin(kPublicIpv4, 0, echo);
  const Origin proxy("127.0.0.1", 0, echo);
  const std::string url = fmt::format("http://127.0.0.1:{}", proxy.port());
  for (const char* name : {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"}) {
    setenv(name, url.c_str(), 1);
  }
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  EXPECT_EQ(door().code("a.test", origin.port()), EgressCode::opened);
  for (const char* name : {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"}) unsetenv(name);
  EXPECT_EQ(proxy.connections(), 0);
}

// -- TLS ---------------------------------------------------------------------------------------

class GatewayTls : public Gateway {
 protected:
  void SetUp() override {
    Gateway::SetUp();
    if (IsSkipped()) return;
    https_.emplace(kPublicIpv4, 443, [this](const Stream& stream) { hear(stream); });
    other_.emplace(kPublicIpv4, 0, [this](const Stream& stream) { hear(stream); });
    allow("a.test");
    allow(fmt::format("a.test:{}", other_->port()));
  }

  void hear(const Stream& stream) {
    const std::string all = stream.read_all();
    const std::lock_guard lock(names_.mutex);
    heard_.push_back(all);
  }

  // What the client hears after it sent `bytes` and its end; what the origins heard is in `heard_`
  // after `records`.
  std::string say(const std::string& bytes, std::uint16_t port = 443) {
    const Door client = door();
    EXPECT_EQ(client.code("a.test", port), EgressCode::opened);
    client.send(bytes);
    client.end_sending();
    return client.read_all();
  }

  EgressRecord only_record() {
    const auto all = records();
    EXPECT_EQ(all.size(), 1U);
    https_.reset();
    other_.reset();
    return all.empty() ? EgressRecord{} : all[0];
  }

  // Before the origins, which write to it.
  std::vector<std::string> heard_;
  std::optional<Origin> https_;
  std::optional<Origin> other_;
};

TEST_F(GatewayTls, AClientThatNamesItsTunnelGoesThroughUnchanged) {
  serve();
  const std::string bytes = client_hello("A.test", 7) + "and what follows";
  EXPECT_EQ(say(bytes), "");
  EXPECT_EQ(only_record().bytes_out, bytes.size());
  EXPECT_EQ(heard_, std::vector{bytes});
}

TEST_F(GatewayTls, AClientThatNamesAnotherServerIsCutOffAndTold) {
  serve();
  EXPECT_EQ(say(client_hello("denied.test")), kAlert);
  const EgressRecord record = only_record();
  EXPECT_EQ(record.decision, EgressDecision::denied);
  EXPECT_EQ(record.reason, "the client names another server (SNI): denied.test");
  EXPECT_EQ(record.bytes_out, 0U);
  EXPECT_EQ(heard_, std::vector{""s}) << "not a byte of it arrived";
}

TEST_F(GatewayTls, AtAnyPortThatIsTlsByItsFirstBytes) {
  serve();
  EXPECT_EQ(say(client_hello("denied.test", 1), other_->port()), kAlert);
  EXPECT_EQ(only_record().decision, EgressDecision::denied);
  EXPECT_EQ(heard_, std::vector{""s});
}

// What some server reads past on its way to a hello, and so to a name that was not looked at.
TEST_F(GatewayTls, AHelloInAnotherGuiseIsCutOffAtAnyPort) {
  serve();
  const std::string hello = client_hello("denied.test");
  const std::string guises[] = {"\x16\x02" + hello.substr(2),
                                "\x16\x04" + hello.substr(2),
                                "\x15\x03\x01\x00\x02\x01\x5a"s + hello,
                                "\x16\x03\x01\x00\x00"s + hello,
                                "\x14\x03\x03\x00\x01\x01"s + hello,
                                "\x80\x2e\x01\x03\x01"s + std::string(43, 'x')};
  for (const std::string& bytes : guises) EXPECT_EQ(say(bytes, other_->port()), kAlert);
  for (const EgressRecord& record : records()) {
    EXPECT_EQ(record.reason, "the client's hello is malformed");
    EXPECT_EQ(record.bytes_out, 0U);
  }
  https_.reset();
  other_.reset();
  EXPECT_EQ(std::set<std::string>(heard_.begin(), heard_.end()), std::set{""s});
}

TEST_F(GatewayTls, NamesBelowAndAboveAreOthers) {
  for (const char* name : {"x.a.test", "test", "a.test.evil.test", ""}) {
    serve();
    EXPECT_EQ(say(client_hello(name)), kAlert) << name;
    EXPECT_EQ(records().at(0).decision, EgressDecision::denied);
  }
  serve();
  EXPECT_EQ(say(client_hello("a.test\0"s)), kAlert);
}

TEST_F(GatewayTls, AHelloWithoutANameOrWithASecretOneIsCutOff) {
  serve();
  EXPECT_EQ(say(in_records(hello_message(tls_extension(10, "xx")))), kAlert);
  EXPECT_EQ(say(in_records(
                hello_message(server_name_extension("a.test") + tls_extension(0xfe0d, "inner")))),
            kAlert);
  EXPECT_EQ(say("\x16\x03\x01\x00\x00"s), kAlert);
  const std::string good = client_hello("a.test");
  EXPECT_EQ(say(good.substr(0, good.size() - 1)), kAlert) << "cut short";
  const auto all = records();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].reason, "the client names no server (SNI)");
  EXPECT_EQ(all[1].reason, "the client may name another server in secret (ECH)");
  EXPECT_EQ(all[2].reason, "the client's hello is malformed");
  EXPECT_EQ(all[3].reason, "the client's hello is incomplete");
}

TEST_F(GatewayTls, Port443TakesNothingElse) {
  serve();
  EXPECT_EQ(say("GET / HTTP/1.1\r\n\r\n"), "");
  const EgressRecord record = only_record();
  EXPECT_EQ(record.reason, "port 443 is for TLS, and this is none");
  EXPECT_EQ(heard_, std::vector{""s});
}

TEST_F(GatewayTls, OtherPortsTakeAnything) {
  serve();
  for (const std::string& bytes : {"x"s, "\x16"s, "\x16\x20rest"s, "SSH-2.0-x\r\n"s, ""s}) {
    EXPECT_EQ(say(bytes, other_->port()), "");
  }
  EXPECT_EQ(say("", 443), "") << "and nothing at all is no wrong name";
  for (const EgressRecord& record : records()) {
    EXPECT_EQ(record.decision, EgressDecision::allowed) << record.reason;
  }
  https_.reset();
  other_.reset();
  EXPECT_EQ(std::set<std::string>(heard_.begin(), heard_.end()),
            (std::set{"x"s, "\x16"s, "\x16\x20rest"s, "SSH-2.0-x\r\n"s, ""s}));
}

TEST_F(GatewayTls, TheCheckCanBeTurnedOff) {
  options_.server_names = ServerNameCheck::no;
  serve();
  EXPECT_EQ(say(client_hello("denied.test")), "");
  EXPECT_EQ(only_record().decision, EgressDecision::allowed);
  EXPECT_EQ(heard_, std::vector{client_hello("denied.test")});
}

TEST_F(GatewayTls, AnAddressHasNoNameToBeHeldTo) {
  allow(kPublicIpv4);
  serve();
  const Door client = door();
  ASSERT_EQ(client.code(kPublicIpv4, 443), EgressCode::opened);
  client.send(client_hello("any.test"));
  client.end_sending();
  EXPECT_EQ(client.read_all(), "");
  EXPECT_EQ(only_record().decision, EgressDecision::allowed);
}

// A server that speaks first is heard before the client said anything.
TEST_F(Gateway, AGreetingDoesNotWaitForTheClient) {
  const Origin origin(kPublicIpv4, 0, [](const Stream& stream) {
    stream.send("220 hello\r\n");
    echo(stream);
  });
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read(11), "220 hello\r\n");
  client.send("QUIT");
  EXPECT_EQ(client.read(4), "QUIT");
}

}  // namespace
}  // namespace casemate
