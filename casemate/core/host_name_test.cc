#include "casemate/core/host_name.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

using namespace std::string_literals;
using Form = HostName::Form;

HostName read(std::string_view text) {
  const auto parsed = parse_host_name(text);
  const auto* host = std::get_if<HostName>(&parsed);
  EXPECT_NE(host, nullptr) << text;
  return host != nullptr ? *host : HostName{};
}

void expect_no_host(std::string_view text, std::string_view rule) {
  const auto parsed = parse_host_name(text);
  const auto* fault = std::get_if<std::string>(&parsed);
  ASSERT_NE(fault, nullptr) << escape_for_display(text);
  EXPECT_NE(fault->find(rule), std::string::npos) << escape_for_display(text) << ": " << *fault;
}

TEST(HostName, ReadsNamesAndAddresses) {
  EXPECT_EQ(read("A.Test."), (HostName{Form::name, "a.test"}));
  EXPECT_EQ(read("192.0.2.7"), (HostName{Form::ipv4, "192.0.2.7"}));
  EXPECT_EQ(read("192.0.2.7."), (HostName{Form::ipv4, "192.0.2.7"}));
  EXPECT_EQ(read("2001:DB8:0::7"), (HostName{Form::ipv6, "2001:db8::7"}));
  EXPECT_EQ(read("::ffff:127.0.0.1"), (HostName{Form::ipv6, "::ffff:127.0.0.1"}));
  EXPECT_EQ(read("localhost").form, Form::name);
}

// EG-12, EG-14: what one reader takes for a name and another for an address is neither.
TEST(HostName, RefusesOddSpellingsOfAddresses) {
  for (const char* text : {"127.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001",
                           "127.0.0.1.1", "1.2.3.256", "127.0.0.0x1", "01.2.3.4", "1.2.3"}) {
    expect_no_host(text, "malformed IP address");
  }
  for (const char* text : {"fe80::1%eth0", "::1::", "[::1]", "1:2", "::ffff:127.1", "a.test:80"}) {
    expect_no_host(text, "malformed IPv6 address");
  }
}

TEST(HostName, RefusesOtherScriptsAndNul) {
  expect_no_host("127\u30020\u30020\u30021", "other than letters");
  expect_no_host("allowed\uff0etest.evil.test", "other than letters");
  expect_no_host("\u2460\u2461\u2466.0.0.1", "other than letters");
  expect_no_host("b\u00FCcher.de", "other than letters");
  expect_no_host("allowed.test\0.evil.test"s, "other than letters");
  expect_no_host("127.0.0.1\0"s, "other than letters");
  expect_no_host("::1\0"s, "malformed IPv6 address");
  expect_no_host("a.test\r\nx", "other than letters");
  expect_no_host("", "empty label");
  expect_no_host(".", "empty label");
  expect_no_host("*.a.test", "'*'");
}

RC_GTEST_PROP(HostName, WhatIsReadIsCanonicalAndOneThing, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::elementOf("aZ09x.-:%\0\x80"s));
  const auto parsed = parse_host_name(text);
  const auto* host = std::get_if<HostName>(&parsed);
  if (host == nullptr) return;
  RC_ASSERT(std::get<HostName>(parse_host_name(host->text)) == *host);
  in_addr loose{};
  // No name is an address to a resolver that takes more spellings.
  RC_ASSERT((inet_aton(host->text.c_str(), &loose) != 0) == (host->form == Form::ipv4));
}

}  // namespace
}  // namespace casemate
