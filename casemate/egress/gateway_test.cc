#include "casemate/egress/gateway.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <stdexcept>

#include "casemate/egress/client_hello_test.h"
#include "casemate/egress/gateway_test.h"
#include "tests/support/own_network.h"

namespace casemate {
namespace {

using namespace std::string_literals;
using namespace std::chrono_literals;

const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

// Longer than any test takes.
constexpr auto kEver = std::chrono::hours(1);

// Answers by table, and counts who asked.
struct Names {
  std::mutex mutex;
  std::map<std::string, std::vector<std::vector<std::string>>> answers;
  std::vector<std::string> asked;

  EgressResolver resolver() {
    return [this](const std::string& name, const std::stop_token&) {
      const std::lock_guard lock(mutex);
      asked.push_back(name);
      auto& turns = answers[name];
      if (turns.empty()) throw std::runtime_error("no such name");
      const std::vector<std::string> texts = turns.front();
      if (turns.size() > 1) turns.erase(turns.begin());
      std::vector<IpAddress> addresses;
      for (const std::string& text : texts) addresses.push_back(IpAddress::parse(text).value());
      return addresses;
    };
  }
};

class Gateway : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!OwnNetwork::why_not().empty()) GTEST_SKIP() << OwnNetwork::why_not();
    options_.resolver = names_.resolver();
    options_.call = "c0ffee";
    options_.log = [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(names_.mutex);
      log_.emplace_back(line);
    };
    names_.answers["a.test"] = {{kPublicIpv4}};
  }

  void allow(const std::string& entry) { options_.allow.push_back(HostPattern::parse(entry)); }

  void serve() {
    gateway_ = std::make_unique<EgressGateway>(options_);
    address_ = sys::bind_to_fresh_name(gateway_->socket());
    gateway_->serve();
  }

  // Ended, so that every record is complete.
  std::vector<EgressRecord> records() {
    gateway_->close();
    return gateway_->records();
  }

  Door door() const { return Door(address_); }

  // So that the origin has seen it, too.
  void expect_echo(const std::string& host, std::uint16_t port) const {
    const Door client = door();
    ASSERT_EQ(client.code(host, port), EgressCode::opened);
    client.send("x");
    EXPECT_EQ(client.read(1), "x");
  }

  Names names_;
  std::vector<std::string> log_;
  EgressOptions options_;
  std::string address_;
  std::unique_ptr<EgressGateway> gateway_;
};

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

constexpr std::string_view kAlert{"\x15\x03\x01\x00\x02\x02\x31", 7};

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
  for (const std::string& bytes : {"x"s, "\x16"s, "\x16\x02rest"s, "SSH-2.0-x\r\n"s, ""s}) {
    EXPECT_EQ(say(bytes, other_->port()), "");
  }
  EXPECT_EQ(say("", 443), "") << "and nothing at all is no wrong name";
  for (const EgressRecord& record : records()) {
    EXPECT_EQ(record.decision, EgressDecision::allowed) << record.reason;
  }
  https_.reset();
  other_.reset();
  EXPECT_EQ(std::set<std::string>(heard_.begin(), heard_.end()),
            (std::set{"x"s, "\x16"s, "\x16\x02rest"s, "SSH-2.0-x\r\n"s, ""s}));
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

// -- Bounds ------------------------------------------------------------------------------------

TEST_F(Gateway, TakesSoManyTunnelsAndTellsTheNextOne) {
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_tunnels = 3;
  serve();
  std::list<Door> open;
  for (int index = 0; index < 3; ++index) {
    open.push_back(door());
    ASSERT_EQ(open.back().code("a.test", origin.port()), EgressCode::opened);
  }
  EXPECT_EQ(door().answer()->code, EgressCode::too_many);
  // A place is free once the host has seen the end.
  open.front().end_sending();
  EXPECT_EQ(open.front().read_all(), "");
  open.pop_front();
  EXPECT_EQ(door().code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(records().at(3).reason, "3 tunnels are open; that is as many as there may be");
}

// EG-26
TEST_F(Gateway, ConnectionsThatAskForNothingAreClosed) {
  options_.request_patience = 20ms;
  allow("a.test");
  serve();
  std::list<Door> silent;
  for (int index = 0; index < 100; ++index) {
    silent.push_back(door());
    if (index % 2 == 0) silent.back().send("x");
  }
  for (const Door& client : silent) EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(records().empty()) << "nothing was asked";
}

TEST_F(Gateway, TunnelsThatAreIdleAreClosed) {
  const Origin origin(kPublicIpv4, 0, echo);
  options_.idle_patience = 20ms;
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read_all(), "");
  EXPECT_NE(records().at(0).reason.find("; idle"), std::string::npos);
}

TEST_F(Gateway, NoTunnelGetsOlderThanItMay) {
  const Origin origin(kPublicIpv4, 0, [](const Stream& stream) {
    while (stream.send(std::string(1000, 'x'))) {
    }
  });
  options_.max_age = 50ms;
  allow(fmt::format("a.test:{}", origin.port()));
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_FALSE(client.read_all().empty());
  EXPECT_NE(records().at(0).reason.find("older than"), std::string::npos);
}

TEST_F(Gateway, AHelloThatNeverEndsIsCutOff) {
  const Origin origin(kPublicIpv4, 443, echo);
  options_.hello_patience = 20ms;
  allow("a.test");
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", 443), EgressCode::opened);
  client.send(client_hello("a.test").substr(0, 20));
  EXPECT_EQ(client.read_all(), kAlert);
  EXPECT_EQ(records().at(0).reason, "the client's hello took too long");
}

TEST_F(Gateway, ANameThatNobodyAnswersIsGivenUp) {
  auto asked = std::make_shared<std::latch>(1);
  options_.resolver = [asked](const std::string&, const std::stop_token& stop) {
    asked->count_down();
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait(lock, stop, [] { return false; });
    return std::vector<IpAddress>();
  };
  options_.resolve_patience = 20ms;
  allow("a.test");
  serve();
  EXPECT_EQ(door().code("a.test", 443), EgressCode::too_slow);
  asked->wait();
  EXPECT_NE(records().at(0).reason.find("resolving took too long"), std::string::npos);
}

// A listener whose queue is full answers no more.
TEST_F(Gateway, AnAddressThatDoesNotAnswerIsGivenUp) {
  const sys::UniqueFd full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, kOtherIpv4, &at.sin_addr);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(full.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(full.get(), 0), 0);
  ASSERT_EQ(getsockname(full.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  std::list<sys::UniqueFd> waiting;
  for (int index = 0; index < 4; ++index) {
    waiting.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    connect(waiting.back().get(), reinterpret_cast<sockaddr*>(&at), size);
  }
  const std::uint16_t port = ntohs(at.sin_port);
  options_.address_patience = 20ms;
  allow(fmt::format("{}:{}", kOtherIpv4, port));
  allow(fmt::format("a.test:{}", port));
  const Origin origin(kPublicIpv4, port, echo);
  names_.answers["a.test"] = {{kOtherIpv4, kPublicIpv4}};
  serve();
  EXPECT_EQ(door().code(kOtherIpv4, port), EgressCode::too_slow);
  EXPECT_EQ(door().code("a.test", port), EgressCode::opened) << "by its other address";
}

TEST_F(Gateway, SoManyBytesGoOutAndNotOneMore) {
  const Origin origin(kPublicIpv4, 0, [](const Stream& stream) { stream.send(stream.read_all()); });
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_bytes_out = 100'000;
  serve();
  const Door first = door();
  ASSERT_EQ(first.code("a.test", origin.port()), EgressCode::opened);
  first.send(std::string(60'000, 'x'));
  first.end_sending();
  EXPECT_EQ(first.read_all().size(), 60'000U);
  const Door second = door();
  ASSERT_EQ(second.code("a.test", origin.port()), EgressCode::opened);
  second.send(std::string(40'000, 'x'));
  second.end_sending();
  EXPECT_EQ(second.read_all().size(), 40'000U) << "all tunnels together, and equal passes";
  const Door third = door();
  ASSERT_EQ(third.code("a.test", origin.port()), EgressCode::opened);
  third.send("x");
  EXPECT_EQ(third.read_all(), "");
  const auto all = records();
  EXPECT_NE(all.at(2).reason.find("over the bound of bytes"), std::string::npos);
  EXPECT_EQ(all.at(2).bytes_out, 0U);
  EXPECT_EQ(all.at(1).reason.find("over the bound"), std::string::npos);
}

TEST_F(Gateway, SoManyBytesComeInAndNotOneMore) {
  const Origin origin(kPublicIpv4, 0,
                      [](const Stream& stream) { stream.send(std::string(1'000'000, 'x')); });
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_bytes_in = 99'999;
  serve();
  const Door client = door();
  ASSERT_EQ(client.code("a.test", origin.port()), EgressCode::opened);
  EXPECT_EQ(client.read_all().size(), 99'999U);
}

// -- The end -----------------------------------------------------------------------------------

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// EG-26
TEST_F(Gateway, ItsEndClosesEveryTunnelAndGivesEveryDescriptorBack) {
  const std::size_t before = open_descriptors();
  {
    const Origin origin(kPublicIpv4, 0, echo);
    allow(fmt::format("a.test:{}", origin.port()));
    serve();
    std::list<Door> clients;
    for (int index = 0; index < 20; ++index) {
      clients.push_back(door());
      if (index % 2 == 0) {
        ASSERT_EQ(clients.back().code("a.test", origin.port()), EgressCode::opened);
      } else {
        clients.back().send("x");
      }
    }
    gateway_->close();
    for (const Door& client : clients) EXPECT_EQ(client.read_all(), "");
    EXPECT_EQ(gateway_->records().size(), 10U);
    EXPECT_NE(gateway_->records()[0].reason.find("the call ended"), std::string::npos);
    EXPECT_THROW(Door{address_}, std::system_error) << "nobody listens";
    gateway_->close();
    gateway_.reset();
  }
  // A thread of a look-up may just be putting its things away.
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (open_descriptors() > before && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_LE(open_descriptors(), before);
}

TEST_F(Gateway, ItsEndDoesNotWaitForALookUpThatHangs) {
  auto begun = std::make_shared<std::promise<void>>();
  auto go_on = std::make_shared<std::promise<void>>();
  options_.resolver = [begun, go_on](const std::string&, const std::stop_token&) {
    begun->set_value();
    go_on->get_future().wait();
    return std::vector<IpAddress>();
  };
  allow("a.test");
  serve();
  const Door client = door();
  client.send(encode_egress(EgressRequest{EgressDoor::socks, "a.test", 443}));
  begun->get_future().wait();
  gateway_.reset();
  EXPECT_EQ(client.read_all(), "");
  go_on->set_value();
}

TEST_F(Gateway, AProgramThatHangsUpIsNotDialledFor) {
  auto begun = std::make_shared<std::promise<void>>();
  auto go_on = std::make_shared<std::promise<void>>();
  options_.resolver = [begun, go_on](const std::string&, const std::stop_token&) {
    begun->set_value();
    go_on->get_future().wait();
    return std::vector{IpAddress::parse(kPublicIpv4).value()};
  };
  const Origin origin(kPublicIpv4, 0, echo);
  allow(fmt::format("a.test:{}", origin.port()));
  options_.max_tunnels = 1;
  serve();
  {
    const Door client = door();
    client.send(encode_egress(EgressRequest{EgressDoor::socks, "a.test", origin.port()}));
    begun->get_future().wait();
  }
  // Its place is free once that was seen.
  while (door().code("other.test", 1) == EgressCode::too_many) {
  }
  go_on->set_value();
  EXPECT_NE(records().at(0).reason.find("the program hung up"), std::string::npos);
  EXPECT_EQ(origin.connections(), 0);
}

TEST_F(Gateway, MayEndBeforeItServed) {
  options_.allow.clear();
  const EgressGateway never(options_);
  EXPECT_TRUE(never.records().empty());
}

// -- Many --------------------------------------------------------------------------------------

// A thousand at once, each with bytes of its own under way; idle, they hold two descriptors each
// and no pipe.
TEST_F(Gateway, ServesAThousandTunnelsWithBoundedMeans) {
  constexpr std::size_t kTunnels = 1000;
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  if (descriptors.rlim_cur < 5 * kTunnels) {
    GTEST_SKIP() << "this process may have " << descriptors.rlim_cur << " descriptors only";
  }
  // One thread for all of them.
  sys::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, kPublicIpv4, &at.sin_addr);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(listener.get(), SOMAXCONN), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::uint16_t port = ntohs(at.sin_port);
  allow(fmt::format("a.test:{}", port));
  serve();
  const std::size_t before = open_descriptors();
  std::list<Door> clients;
  std::list<Stream> origins;
  for (std::size_t index = 0; index < kTunnels; ++index) {
    clients.push_back(door());
    ASSERT_EQ(clients.back().code("a.test", port), EgressCode::opened) << index;
    origins.emplace_back(sys::UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  const auto text = [](std::size_t index) { return fmt::format("tunnel {:04}", index); };
  std::size_t index = 0;
  for (const Door& client : clients) client.send(text(index++));
  index = 0;
  for (const Stream& origin : origins) {
    const std::string heard = origin.read(11);
    EXPECT_EQ(heard, text(index++));
    origin.send(heard);
  }
  index = 0;
  for (const Door& client : clients) EXPECT_EQ(client.read(11), text(index++));
  // Two of a tunnel here, two of the test's, and some spare pipes.
  EXPECT_LE(open_descriptors(), before + 4 * kTunnels + 32);
  std::uint64_t out = 0;
  for (const EgressRecord& record : records()) out += record.bytes_out;
  EXPECT_EQ(out, kTunnels * text(0).size()) << "no tunnel is forgotten";
}

}  // namespace
}  // namespace casemate
