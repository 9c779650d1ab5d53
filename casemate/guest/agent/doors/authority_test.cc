#include "casemate/guest/agent/doors/authority.h"

#include <gtest/gtest.h>

#include <string>

using namespace std::string_literals;

namespace casemate::guest {
namespace {

TEST(Authority, IsCanonical) {
  EXPECT_EQ(parse_authority("Allowed.Test.:443"), (Authority{"allowed.test", 443}));
  EXPECT_EQ(parse_authority("allowed.test"), (Authority{"allowed.test", std::nullopt}));
  EXPECT_EQ(parse_authority("192.0.2.7:80"), (Authority{"192.0.2.7", 80}));
  EXPECT_EQ(parse_authority("[2001:DB8:0::7]:8443"), (Authority{"2001:db8::7", 8443}));
  EXPECT_EQ(parse_authority("a_b.test"), (Authority{"a_b.test", std::nullopt}));
}

TEST(Authority, HasNoOtherSpelling) {
  for (const std::string& text : {""s,
                                  "."s,
                                  ":443"s,
                                  "a..b"s,
                                  ".a"s,
                                  "a:"s,
                                  "a:0"s,
                                  "a:080"s,
                                  "a:65536"s,
                                  "a:+1"s,
                                  "a:1:2"s,
                                  "a b"s,
                                  "a\tb"s,
                                  "a%2eb"s,
                                  "user@a"s,
                                  "a/b"s,
                                  "a\\b"s,
                                  "a,b"s,
                                  "a\0.b"s,
                                  "\xe2\x91\xa0.test"s,
                                  "127\xe3\x80\x82"
                                  "0.0.1"s,
                                  "[::1"s,
                                  "[::1]x"s,
                                  "[::1%25lo]:80"s,
                                  "[::1%lo]:80"s,
                                  "[127.0.0.1]:80"s,
                                  "[::1\0]:80"s,
                                  "[]:80"s,
                                  "::1"s,
                                  std::string(64, 'a') + ".test",
                                  std::string(254, 'a')}) {
    EXPECT_EQ(parse_authority(text), std::nullopt) << text;
  }
}

TEST(Authority, TakesALabelOf63BytesAndANameOf253) {
  EXPECT_TRUE(parse_host(std::string(63, 'a')));
  const std::string label = std::string(63, 'a') + ".";
  const std::string longest = label + label + label + std::string(61, 'a');
  ASSERT_EQ(longest.size(), 253U);
  EXPECT_TRUE(parse_host(longest));
  EXPECT_TRUE(parse_host(longest + "."));
  EXPECT_FALSE(parse_host(longest + "a"));
}

TEST(Authority, PutsAnIpv6AddressInBrackets) {
  EXPECT_EQ(authority_text("2001:db8::7", 80), "[2001:db8::7]:80");
  EXPECT_EQ(authority_text("a.test", 443), "a.test:443");
}

}  // namespace
}  // namespace casemate::guest
