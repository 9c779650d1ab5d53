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
  expect_refused("*.", "empty label");
}

// EG-10. A public suffix is one that strangers get names under.
TEST(HostPattern, RefusesAPublicSuffix) {
  for (const char* entry :
       {"*.co.uk", "*.CO.UK.", "*.github.io", "*.s3.amazonaws.com:443", "*.kawasaki.jp", "*.ck"}) {
    expect_refused(entry, entry == "*.ck"s ? "top-level domain" : "anybody can get a name below");
  }
  expect_refused("com", "top-level domain");
  expect_refused("Uk.:443", "top-level domain");
  for (const char* entry : {"*.example.co.uk", "*.me.github.io", "github.io", "*.github.com",
                            "*.city.kawasaki.jp", "*.a.test", "intranet"}) {
    EXPECT_NO_THROW(HostPattern::parse(entry)) << entry;
  }
}

TEST(HostPattern, RefusesNamesOfLoopback) {
  expect_refused("localhost", "127.0.0.1:PORT");
  expect_refused("LOCALHOST.:8080", "127.0.0.1:PORT");
  expect_refused("a.localhost", "127.0.0.1:PORT");
  expect_refused("*.a.localhost", "127.0.0.1:PORT");
  EXPECT_NO_THROW(HostPattern::parse("localhost.test"));
}

TEST(HostPattern, TakesInternationalNamesInTheirEncodedForm) {
  EXPECT_EQ(HostPattern::parse("b\u00FCcher.de").text(), "xn--bcher-kva.de");
  EXPECT_EQ(HostPattern::parse("B\u00DCCHER.de.:443").text(), "xn--bcher-kva.de:443");
  EXPECT_EQ(HostPattern::parse("*.b\u00FCcher.de").text(), "*.xn--bcher-kva.de");
  EXPECT_EQ(HostPattern::parse("u\u0308ber.de"), HostPattern::parse("\u00FCber.de"));
  EXPECT_EQ(HostPattern::parse("fa\u00DF.de").text(), "xn--fa-hia.de") << "not transitional";
  EXPECT_EQ(HostPattern::parse("xn--bcher-kva.de"), HostPattern::parse("b\u00FCcher.de"));
  expect_refused("xn--\u00FC.de", "no international name");
  expect_refused("xn--99999999.de", "malformed");
  expect_refused("\u2603\u202E.de", "no international name");
  expect_refused("a\xff.de", "not UTF-8");
  expect_refused(std::string(1025, 'a'), "1025 bytes, over the limit of 1024");
}

// EG-12. What turns into a dot, a digit or a star after the check has to be checked then.
TEST(HostPattern, RefusesOtherScriptsDotsDigitsAndStars) {
  expect_refused("allowed\u3002test", "full stop");
  expect_refused("127\uff0e0\uff0e0\uff0e1", "full stop");
  expect_refused("a\uff61test", "full stop");
  expect_refused("\u2460\u2461\u2466.0.0.1", "ASCII only");
  expect_refused("\uff11\uff12\uff17.0.0.1", "ASCII only");
  expect_refused("\uff0a.a.test", "'*' may only stand");
  expect_refused("a.test\uff0fpath", "letters, digits");
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
  for (const char* entry : {"127.0.0.1:53", "[::1]:53", "[0:0::1]:53"}) {
    expect_refused(entry, "a sandbox's own resolver");
  }
  expect_refused("[::ffff:192.0.2.7]:443", "write 192.0.2.7");
  expect_refused("[::ffff:c000:207]", "write 192.0.2.7");
  expect_refused("224.0.0.1", "multicast");
  expect_refused("239.255.255.255:80", "multicast");
  expect_refused("[ff02::1]", "multicast");
  expect_refused("255.255.255.255", "broadcast");
  expect_refused("[fe80::1]:80", "link-local");
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
  for (const char* entry : {"127.0.0.1", "127.0.0.1:54", "127.0.0.2:53", "[::1]", "[::1]:80",
                            "169.254.169.254", "240.0.0.1", "[::7f00:1]", "[fec0::1]"}) {
    EXPECT_EQ(HostPattern::parse(entry).form(), Form::address) << entry;
  }
  EXPECT_EQ(HostPattern::parse("192.0.2.7").form(), Form::address);
  EXPECT_EQ(HostPattern::parse("[2001:db8::7]:443").form(), Form::address);
  EXPECT_EQ(HostPattern::parse("intranet").form(), Form::name);
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
