#include "casemate/core/host_pattern.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using namespace std::string_literals;

using Form = HostPattern::Form;

void expect_refused(std::string_view entry, std::string_view rule) {
  const std::string text =
      expect_refusal<InvalidArgument>([&] { HostPattern::parse(entry); }, {"egress entry", rule});
  EXPECT_FALSE(text.empty()) << escape_for_display(entry);
}

TEST(HostPattern, RefusesWhatIsNoHost) {
  expect_refused("", "empty");
  expect_refused(" ", "white space");
  expect_refused("a b.org", "white space");
  expect_refused("a.org\n", "white space");
  expect_refused("a.org,b.org", "comma");
  expect_refused("https://a.org", "scheme");
  expect_refused("a.org/path", "slash");
  expect_refused("10.0.0.0/8", "slash");
  expect_refused("me@a.org", "user");
  expect_refused("1.2.3.4\0.evil.org"s, "control character");
  expect_refused("a.org\x1b", "control character");
  expect_refused("b\u00FCcher.de", "xn--");
  expect_refused("a_b.org", "letters, digits, hyphens");
  expect_refused("a.org?", "letters, digits, hyphens");
}

TEST(HostPattern, RefusesMalformedLabels) {
  expect_refused("a..org", "empty label");
  expect_refused(".org", "empty label");
  expect_refused(".", "empty label");
  expect_refused("a.org..", "empty label");
  expect_refused("-a.org", "hyphen");
  expect_refused("a-.org", "hyphen");
  EXPECT_EQ(HostPattern::parse(std::string(63, 'a') + ".org").host().size(), 67U);
  expect_refused(std::string(64, 'a') + ".org", "64 bytes, over the limit of 63");
}

TEST(HostPattern, ANameOf253BytesPassesAndOneMoreIsRefused) {
  const std::string label = std::string(62, 'a') + ".";
  const std::string longest = label + label + label + label + "b";
  ASSERT_EQ(longest.size(), 253U);
  EXPECT_EQ(HostPattern::parse(longest).host(), longest);
  EXPECT_EQ(HostPattern::parse(longest + ".").host(), longest);
  expect_refused(longest + "b", "254 bytes, over the limit of 253");
}

TEST(HostPattern, RefusesAStarElsewhereThanAsTheWholeFirstLabel) {
  expect_refused("*", "'*' may only stand");
  expect_refused("a.*.org", "'*' may only stand");
  expect_refused("a*.org", "'*' may only stand");
  expect_refused("*a.org", "'*' may only stand");
  expect_refused("*.*.org", "'*' may only stand");
}

TEST(HostPattern, RefusesASuffixOfOneLabel) {
  expect_refused("*.com", "top-level domain");
  expect_refused("*.COM.", "top-level domain");
  expect_refused("*.", "may only stand");
}

TEST(HostPattern, RefusesMalformedAddresses) {
  expect_refused("1.2.3", "malformed IP address");
  expect_refused("1.2.3.256", "malformed IP address");
  expect_refused("01.2.3.4", "malformed IP address");
  expect_refused("2130706433", "malformed IP address");
  expect_refused("0x7f.1", "malformed IP address");
  expect_refused("a.0x7f", "malformed IP address");
  expect_refused("*.1.2.3.4", "malformed IP address");
  expect_refused("::1", "brackets");
  expect_refused("[::1", "not closed");
  expect_refused("[]", "no IPv6 address");
  expect_refused("[fe80::1%eth0]", "no IPv6 address");
  expect_refused("[1.2.3.4]", "no IPv6 address");
  expect_refused("[::1]x", "only :port");
}

TEST(HostPattern, RefusesPortsOutsideTheirRange) {
  for (const char* entry :
       {"a.org:", "a.org:0", "a.org:65536", "a.org:99999", "a.org:+1", "a.org:-1", "a.org:0x50",
        "a.org:443a", "a.org:000443", "[::1]:", "[::1]:0", "1.2.3.4:65536"}) {
    expect_refused(entry, "1 to 65535");
  }
  expect_refused("a.org:1:2", "several colons");
  expect_refused(":443", "no host");
  EXPECT_EQ(HostPattern::parse("a.org:1").port(), 1);
  EXPECT_EQ(HostPattern::parse("a.org:65535").port(), 65535);
}

TEST(HostPattern, ReadsEachForm) {
  const HostPattern name = HostPattern::parse("example.org");
  EXPECT_EQ(name.form(), Form::name);
  EXPECT_EQ(name.host(), "example.org");
  EXPECT_EQ(name.port(), std::nullopt);
  const HostPattern suffix = HostPattern::parse("*.example.org:8443");
  EXPECT_EQ(suffix.form(), Form::suffix);
  EXPECT_EQ(suffix.host(), "example.org");
  EXPECT_EQ(suffix.port(), 8443);
  EXPECT_EQ(HostPattern::parse("192.0.2.7").form(), Form::address);
  EXPECT_EQ(HostPattern::parse("[2001:db8::7]:443").form(), Form::address);
  EXPECT_EQ(HostPattern::parse("localhost").form(), Form::name);
  EXPECT_EQ(HostPattern::parse("xn--bcher-kva.de").form(), Form::name);
}

TEST(HostPattern, IsCanonical) {
  EXPECT_EQ(HostPattern::parse("EXAMPLE.Org.").text(), "example.org");
  EXPECT_EQ(HostPattern::parse("*.Example.ORG.:443").text(), "*.example.org:443");
  EXPECT_EQ(HostPattern::parse("[2001:0DB8:0:0:0:0:0:7]:80").text(), "[2001:db8::7]:80");
  EXPECT_EQ(HostPattern::parse("192.0.2.7:80").text(), "192.0.2.7:80");
  EXPECT_EQ(HostPattern::parse("Example.org"), HostPattern::parse("example.ORG."));
  EXPECT_NE(HostPattern::parse("example.org"), HostPattern::parse("example.org:443"));
}

RC_GTEST_PROP(HostPattern, WhatParsesReadsBackTheSame, ()) {
  const auto entry = *rc::gen::container<std::string>(rc::gen::elementOf("aZ09.*-:[]f"s));
  try {
    const HostPattern pattern = HostPattern::parse(entry);
    RC_ASSERT(HostPattern::parse(pattern.text()) == pattern);
  } catch (const InvalidArgument&) {
  }
}

}  // namespace
}  // namespace casemate
