#include "casemate/guest/agent/doors/dns_message.h"

#include <gtest/gtest.h>

#include <string>

#include "casemate/guest/agent/doors/door_names.h"
#include "casemate/guest/agent/doors/resolver.h"

using namespace std::string_literals;

namespace casemate::guest {
namespace {

std::string wire_name(std::string_view name) {
  std::string wire;
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    wire += static_cast<char>(dot);
    wire += name.substr(0, dot);
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return wire + "\0"s;
}

std::string query(std::string_view wire, char type = 1, bool edns = false) {
  std::string bytes = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00"s;
  bytes += edns ? '\x01' : '\0';
  bytes += wire;
  bytes += '\0';
  bytes += type;
  bytes += "\x00\x01"s;
  if (edns) bytes += "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"s;
  return bytes;
}

int code_of(const std::string& answer) { return answer.at(3) & 0xf; }
int answers_of(const std::string& answer) { return answer.at(7); }

TEST(DnsMessage, QuestionIsReadInLowerCase) {
  const DnsReading reading = read_dns_query(query(wire_name("WwW.Allowed.Test")));
  ASSERT_TRUE(reading.query);
  EXPECT_EQ(reading.query->id, 0x1234);
  EXPECT_EQ(reading.query->name, "www.allowed.test");
  EXPECT_EQ(reading.query->type, kDnsTypeA);
  EXPECT_TRUE(reading.query->recursion_desired);
  EXPECT_FALSE(reading.query->edns);
  EXPECT_TRUE(read_dns_query(query(wire_name("a"), 1, true)).query->edns);
}

TEST(DnsMessage, LabelWithADotOrANulIsNoListedName) {
  for (const std::string& label : {"allowed.test"s, "a\0b"s, "\xc3\xa4"s, "a b"s}) {
    const std::string wire = static_cast<char>(label.size()) + label + "\0"s;
    const DnsReading reading = read_dns_query(query(wire));
    ASSERT_TRUE(reading.query) << label;
    EXPECT_EQ(reading.query->name, "") << label;
  }
}

TEST(DnsMessage, AnswersAndFragmentsAreDropped) {
  std::string answer = query(wire_name("a.test"));
  answer[2] = '\x81';
  EXPECT_FALSE(read_dns_query(answer).query);
  EXPECT_FALSE(read_dns_query(answer).fault);
  EXPECT_FALSE(read_dns_query("\x12\x34"s).fault);
  EXPECT_FALSE(read_dns_query(std::string(kMaxDnsQuery + 1, 'x')).fault);
}

TEST(DnsMessage, EveryTruncationIsAFault) {
  const std::string whole = query(wire_name("a.allowed.test"), 1, true);
  for (std::size_t size = 12; size < whole.size(); ++size) {
    const DnsReading reading = read_dns_query(whole.substr(0, size));
    EXPECT_FALSE(reading.query) << size;
    EXPECT_EQ(reading.fault, DnsCode::format_error) << size;
  }
}

TEST(DnsMessage, CompressedOrOverlongNamesAreFaults) {
  EXPECT_EQ(read_dns_query(query("\xc0\x0c"s)).fault, DnsCode::format_error);
  std::string wire;
  for (int i = 0; i < 4; ++i) wire += "\x3f" + std::string(63, 'a');
  EXPECT_EQ(read_dns_query(query(wire + "\0"s)).fault, DnsCode::format_error);
  wire.resize(wire.size() - 64);
  wire += "\x3d" + std::string(61, 'a');
  EXPECT_TRUE(read_dns_query(query(wire + "\0"s)).query) << "255 bytes on the wire";
}

TEST(DnsMessage, OtherOperationsAreNotImplemented) {
  std::string update = query(wire_name("a.test"));
  update[2] = '\x28';
  EXPECT_EQ(read_dns_query(update).fault, DnsCode::not_implemented);
}

class ResolverTest : public ::testing::Test {
 protected:
  std::string ask(std::string_view name, char type = 1, bool edns = false) {
    return resolver_.answer(query(wire_name(name), type, edns)).value();
  }

  bool can_listen_ = true;
  int listened_ = 0;
  DoorNames names_{{{EgressDoorRule::Form::name, "allowed.test", {80, 443}},
                    {EgressDoorRule::Form::suffix, "wild.test", {443}},
                    {EgressDoorRule::Form::ipv4, "127.64.0.1", {80}}},
                   kLoopbackAddresses};
  Resolver resolver_{names_, [this](const std::string&, const Ipv4Bytes&) {
                       ++listened_;
                       return can_listen_;
                     }};
};

TEST_F(ResolverTest, ListedNameHasAnAddressThatStaysItsOwn) {
  const std::string first = ask("allowed.test");
  EXPECT_EQ(code_of(first), 0);
  ASSERT_EQ(answers_of(first), 1);
  // 127.64.0.1 is on the list itself.
  EXPECT_TRUE(first.ends_with("\x00\x04\x7f\x40\x00\x02"s));
  EXPECT_EQ(ask("allowed.test"), first);
  EXPECT_TRUE(ask("a.b.wild.test").ends_with("\x7f\x40\x00\x03"s));
}

TEST_F(ResolverTest, OtherNamesAreUnknownAtOnceAndSayWhy) {
  for (const char* name : {"denied.test", "wild.test", "allowed.test.evil.test", "xallowed.test",
                           "xwild.test", "test"}) {
    const std::string answer = ask(name);
    EXPECT_EQ(code_of(answer), 3) << name;
    EXPECT_EQ(answers_of(answer), 0) << name;
  }
  EXPECT_NE(ask("denied.test", 1, true).find("policy"), std::string::npos);
  EXPECT_EQ(listened_, 0);
}

TEST_F(ResolverTest, ListedNameHasNothingButAnAddress) {
  for (const char type : {'\x1c', '\x41', '\x0f', '\x10'}) {
    const std::string answer = ask("allowed.test", type);
    EXPECT_EQ(code_of(answer), 0);
    EXPECT_EQ(answers_of(answer), 0);
  }
}

TEST_F(ResolverTest, NameAtWhoseAddressNobodyCanListenIsAskedForAgain) {
  can_listen_ = false;
  EXPECT_EQ(code_of(ask("allowed.test")), 2);
  can_listen_ = true;
  EXPECT_EQ(answers_of(ask("allowed.test")), 1);
}

TEST_F(ResolverTest, NamesBelowAWildcardAreBounded) {
  for (std::size_t i = 0; i < kMaxNamesGiven; ++i) {
    ASSERT_EQ(answers_of(ask("n" + std::to_string(i) + ".wild.test")), 1) << i;
  }
  EXPECT_EQ(code_of(ask("one.more.wild.test")), 2);
  EXPECT_EQ(answers_of(ask("n0.wild.test")), 1);
}

}  // namespace
}  // namespace casemate::guest
