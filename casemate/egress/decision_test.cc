#include "casemate/egress/decision.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

using namespace std::string_literals;

std::vector<HostPattern> list(std::initializer_list<const char*> entries) {
  std::vector<HostPattern> parsed;
  for (const char* entry : entries) parsed.push_back(HostPattern::parse(entry));
  return parsed;
}

EgressVerdict ask(const std::vector<HostPattern>& allow, const std::string& host,
                  std::uint16_t port = 443) {
  return decide(allow, {.door = EgressDoor::http_connect, .host = host, .port = port});
}

// -- The table: each class of entry by each class of request -----------------------------------

struct EntryClass {
  const char* name;
  const char* entry;
};
constexpr EntryClass kEntries[] = {
    {"exact name", "allowed.test"},
    {"exact name with a port", "allowed.test:8443"},
    {"suffix", "*.allowed.test"},
    {"suffix with a port", "*.allowed.test:8443"},
    {"IPv4 literal", "192.0.2.7"},
    {"IPv4 literal with a port", "192.0.2.7:8443"},
    {"loopback literal", "127.0.0.1"},
    {"IPv6 literal", "[2001:db8::7]"},
    {"NAT64 literal", "[64:ff9b::c000:207]"},
};

struct RequestClass {
  const char* name;
  std::string host;
  std::uint16_t port;
  // Of the entries above, by name, those that let it through.
  std::set<std::string> allowed_by;
  bool malformed = false;
};

std::vector<RequestClass> requests() {
  return {
      {"the name", "allowed.test", 443, {"exact name"}},
      {"the name at port 80", "allowed.test", 80, {"exact name"}},
      {"the name at another port", "allowed.test", 22, {}},
      {"the name at the written port", "allowed.test", 8443, {"exact name with a port"}},
      {"the name in capitals", "ALLOWED.Test", 443, {"exact name"}},
      {"the name with a trailing dot", "allowed.test.", 443, {"exact name"}},
      {"one label below", "a.allowed.test", 443, {"suffix"}},
      {"three labels below", "a.b.c.allowed.test", 443, {"suffix"}},
      {"below, at the written port", "a.allowed.test", 8443, {"suffix with a port"}},
      {"a name that ends alike", "notallowed.test", 443, {}},
      {"a name that begins alike", "allowed.test.evil.test", 443, {}},
      {"a parent", "test", 443, {}},
      {"another name", "denied.test", 443, {}},
      {"localhost", "localhost", 443, {}},
      {"the IPv4 address", "192.0.2.7", 443, {"IPv4 literal"}},
      {"the IPv4 address at the written port", "192.0.2.7", 8443, {"IPv4 literal with a port"}},
      {"another IPv4 address", "192.0.2.8", 443, {}},
      {"loopback", "127.0.0.1", 443, {"loopback literal"}},
      {"another loopback address", "127.0.0.2", 443, {}},
      {"the IPv6 address", "2001:db8::7", 443, {"IPv6 literal"}},
      {"the IPv6 address written out", "2001:0DB8:0:0:0:0:0:7", 443, {"IPv6 literal"}},
      {"the NAT64 address", "64:ff9b::192.0.2.7", 443, {"NAT64 literal"}},
      {"the mapped address", "::ffff:192.0.2.7", 443, {}},
      {"loopback, mapped", "::ffff:127.0.0.1", 443, {}},
      {"loopback of IPv6", "::1", 443, {}},
      {"an address with parts left out", "127.1", 443, {}, true},
      {"an address in octal", "0177.0.0.1", 443, {}, true},
      {"an address as one number", "2130706433", 443, {}, true},
      {"an address in hexadecimal", "0x7f000001", 443, {}, true},
      {"an address with a zone", "fe80::1%eth0", 443, {}, true},
      {"an address in brackets", "[2001:db8::7]", 443, {}, true},
      {"a name with a NUL", "allowed.test\0.evil.test"s, 443, {}, true},
      {"a name that ends with a NUL", "allowed.test\0"s, 443, {}, true},
      {"a name with another script's full stop", "allowed\uff0etest", 443, {}, true},
      {"circled digits", "\u2460\u2461\u2466.0.0.1", 443, {}, true},
      {"a name with a user", "allowed.test@evil.test", 443, {}, true},
      {"a name with a port", "allowed.test:443", 443, {}, true},
      {"a name with a path", "allowed.test/", 443, {}, true},
      {"a name with a space", "allowed.test ", 443, {}, true},
      {"a name with a line's end", "allowed.test\r\nHost: evil.test", 443, {}, true},
      {"two dots", "allowed..test", 443, {}, true},
      {"two trailing dots", "allowed.test..", 443, {}, true},
      {"a star", "*.allowed.test", 443, {}, true},
      {"nothing", "", 443, {}, true},
      {"a label of 64", std::string(64, 'a') + ".test", 443, {}, true},
      {"port 0", "allowed.test", 0, {}, true},
  };
}

TEST(EgressDecision, EachClassOfRequestByEachClassOfEntry) {
  for (const RequestClass& request : requests()) {
    for (const EntryClass& entry : kEntries) {
      SCOPED_TRACE(fmt::format("{} under {}", request.name, entry.name));
      const EgressVerdict verdict = ask(list({entry.entry}), request.host, request.port);
      const EgressCode expected = request.malformed ? EgressCode::malformed
                                  : request.allowed_by.contains(entry.name)
                                      ? EgressCode::opened
                                      : EgressCode::not_on_list;
      EXPECT_EQ(verdict.code, expected);
      EXPECT_EQ(verdict.entry, expected == EgressCode::opened ? entry.entry : "");
      EXPECT_EQ(verdict.sentence.empty(), expected == EgressCode::opened);
      EXPECT_EQ(verdict.reason.empty(), expected == EgressCode::opened);
    }
  }
}

TEST(EgressDecision, NamesTheEntryThatAllows) {
  const auto allow = list({"a.test:8080", "*.test.example", "a.test"});
  EXPECT_EQ(ask(allow, "a.test").entry, "a.test");
  EXPECT_EQ(ask(allow, "a.test", 8080).entry, "a.test:8080");
  EXPECT_EQ(ask(allow, "x.test.example", 80).entry, "*.test.example");
}

TEST(EgressDecision, AnEmptyListAllowsNothing) {
  for (const RequestClass& request : requests()) {
    EXPECT_NE(ask({}, request.host, request.port).code, EgressCode::opened) << request.name;
  }
}

TEST(EgressDecision, SaysThatItIsPolicy) {
  const EgressVerdict verdict = ask(list({"a.test"}), "b.test");
  EXPECT_NE(verdict.sentence.find("policy"), std::string::npos);
  EXPECT_NE(verdict.sentence.find("b.test:443"), std::string::npos);
  EXPECT_EQ(verdict.sentence.find("a.test"), std::string::npos) << "the list is not recited";
  EXPECT_EQ(ask(list({"a.test"}), "a.test", 22).reason, "port not on the list");
  EXPECT_NE(ask({}, "2001:db8::7", 22).sentence.find("[2001:db8::7]:22"), std::string::npos);
}

// EG-20: it is the request alone that counts.
TEST(EgressDecision, TheDoorChangesNothing) {
  for (const EgressDoor door :
       {EgressDoor::unnamed, EgressDoor::transparent, EgressDoor::http_connect,
        EgressDoor::http_request, EgressDoor::socks}) {
    EXPECT_EQ(decide(list({"a.test"}), {door, "a.test", 443}).code, EgressCode::opened);
    EXPECT_EQ(decide(list({"a.test"}), {door, "b.test", 443}).code, EgressCode::not_on_list);
  }
}

rc::Gen<std::string> names() {
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
                          "a", "b", "allowed", "test", "notallowed", "x-y", "127", "0", "1")),
                      [](const std::vector<std::string>& labels) {
                        return fmt::format("{}", fmt::join(labels, "."));
                      });
}

RC_GTEST_PROP(EgressDecision, WhatIsAllowedIsAnEntryOrLiesBelowASuffix, ()) {
  const std::string host = *names();
  const auto port = *rc::gen::element<std::uint16_t>(80, 443, 22);
  const auto allow = list({"allowed.test", "*.a.test:22", "*.b.test", "127.0.0.1"});
  if (ask(allow, host, port).code != EgressCode::opened) return;
  const bool web = port != 22;
  RC_ASSERT((host == "allowed.test" && web) || (host == "127.0.0.1" && web) ||
            (host.ends_with(".a.test") && port == 22) || (host.ends_with(".b.test") && web));
}

RC_GTEST_PROP(EgressDecision, IsTheSameForEverySpellingOfAName, ()) {
  const std::string host = *names();
  const auto allow = list({"allowed.test", "*.a.test", "*.b.test"});
  std::string shouted = host + ".";
  for (char& letter : shouted) letter = static_cast<char>(std::toupper(letter));
  // One dot more makes of a name with a trailing dot another, and of none a root.
  if (host.empty() || host.ends_with('.')) return;
  RC_ASSERT(ask(allow, host).code == ask(allow, shouted).code);
  RC_ASSERT(ask(allow, host).host == ask(allow, shouted).host);
}

RC_GTEST_PROP(EgressDecision, SaysSomethingOfAnything, (const std::string& host)) {
  const EgressVerdict verdict = ask(list({"a.test"}), host, 443);
  RC_ASSERT(is_valid_utf8(verdict.sentence) && is_valid_utf8(verdict.reason));
  RC_ASSERT(verdict.sentence.size() < kMaxEgressFrame);
  RC_ASSERT(verdict.code == EgressCode::opened || !verdict.sentence.empty());
}

// -- Addresses ---------------------------------------------------------------------------------

std::vector<IpAddress> addresses(std::initializer_list<const char*> texts) {
  std::vector<IpAddress> parsed;
  for (const char* text : texts) parsed.push_back(IpAddress::parse(text).value());
  return parsed;
}

// EG-16
TEST(EgressDecision, ANameLeadsToNoInternalAddress) {
  for (const char* internal : {"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1",
                               "64:ff9b::a00:1", "0.0.0.0", "100.64.0.1", "224.0.0.1"}) {
    const AddressVerdict verdict = check_addresses(addresses({internal}));
    EXPECT_TRUE(verdict.permitted.empty()) << internal;
    EXPECT_NE(verdict.reason.find(internal), std::string::npos) << verdict.reason;
  }
  EXPECT_NE(check_addresses(addresses({"169.254.169.254"})).reason.find("metadata"),
            std::string::npos);
}

TEST(EgressDecision, OfMixedAnswersOnlyThePublicOnesAreDialled) {
  const AddressVerdict verdict = check_addresses(
      addresses({"10.0.0.1", "203.0.113.7", "::1", "2001:db8::7", "169.254.169.254"}));
  EXPECT_EQ(verdict.permitted, addresses({"203.0.113.7", "2001:db8::7"}));
  EXPECT_EQ(verdict.reason, "");
  EXPECT_FALSE(check_addresses({}).reason.empty());
}

}  // namespace
}  // namespace casemate
