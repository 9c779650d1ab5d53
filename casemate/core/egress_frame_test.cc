#include "casemate/core/egress_frame.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <stdexcept>

namespace casemate {
namespace {

using namespace std::string_literals;

std::string_view body_of(const std::string& frame) {
  return std::string_view(frame).substr(kEgressLengthBytes);
}

std::optional<std::size_t> length_of(const std::string& frame) {
  return egress_frame_length(std::span<const char, kEgressLengthBytes>(frame.data(), 2));
}

TEST(EgressFrame, ARequestIsTheseBytes) {
  const std::string frame =
      encode_egress(EgressRequest{.door = EgressDoor::http_connect, .host = "a.test", .port = 443});
  EXPECT_EQ(frame,
            "\x0b\x00"
            "\x01\x02\xbb\x01\x06"
            "a.test"s);
  EXPECT_EQ(length_of(frame), 11U);
}

TEST(EgressFrame, AnAnswerIsTheseBytes) {
  EXPECT_EQ(encode_egress(EgressAnswer{}), "\x01\x00\x00"s);
  EXPECT_EQ(encode_egress(EgressAnswer{EgressCode::not_on_list, "no."}), "\x04\x00\x01no."s);
}

TEST(EgressFrame, RefusesRequestsThatCannotBeMeant) {
  const std::string good = "\x01\x02\xbb\x01\x06"s + "a.test";
  ASSERT_TRUE(decode_egress_request(good));
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(decode_egress_request(std::string_view(good).substr(0, cut))) << cut;
  }
  EXPECT_FALSE(decode_egress_request(good + "x"));
  EXPECT_FALSE(decode_egress_request("\x02\x02\xbb\x01\x01"s + "a")) << "another version";
  EXPECT_TRUE(decode_egress_request("\x01\x04\xbb\x01\x01"s + "a"));
  EXPECT_FALSE(decode_egress_request("\x01\x05\xbb\x01\x01"s + "a")) << "an unknown door";
  EXPECT_FALSE(decode_egress_request("\x01\x02\x00\x00\x01"s + "a")) << "port 0";
  EXPECT_TRUE(decode_egress_request("\x01\x01\x00\x00\x01"s + "a")) << "a look-up";
  EXPECT_FALSE(decode_egress_request("\x01\x02\xbb\x01\x00"s)) << "no host";
}

TEST(EgressFrame, RefusesAnswersThatCannotBeMeant) {
  EXPECT_FALSE(decode_egress_answer(""));
  EXPECT_TRUE(decode_egress_answer("\x07"));
  EXPECT_FALSE(decode_egress_answer("\x08"));
  EXPECT_FALSE(decode_egress_answer("\x01two\nlines"));
  EXPECT_TRUE(
      decode_egress_answer(std::string(kMaxEgressFrame, '\x01').replace(1, 1023, 1023, 'x')));
  EXPECT_FALSE(decode_egress_answer("\x01"s + std::string(kMaxEgressFrame, 'x')));
}

TEST(EgressFrame, LengthsOutsideTheBoundAreNone) {
  EXPECT_EQ(length_of("\x00\x00"s), std::nullopt);
  EXPECT_EQ(length_of("\x01\x00"s), 1U);
  EXPECT_EQ(length_of("\x00\x04"s), 1024U);
  EXPECT_EQ(length_of("\x01\x04"s), std::nullopt);
}

TEST(EgressFrame, WhatDoesNotFitIsNotSent) {
  EXPECT_THROW(encode_egress(EgressRequest{.host = ""}), std::length_error);
  EXPECT_NO_THROW(encode_egress(EgressRequest{.host = std::string(255, 'a')}));
  EXPECT_THROW(encode_egress(EgressRequest{.host = std::string(256, 'a')}), std::length_error);
  EXPECT_NO_THROW(encode_egress(EgressAnswer{EgressCode::malformed, std::string(1023, 'a')}));
  EXPECT_THROW(encode_egress(EgressAnswer{EgressCode::malformed, std::string(1024, 'a')}),
               std::length_error);
}

TEST(EgressFrame, ProxiesTellPolicyFromTrouble) {
  EXPECT_EQ(http_status(EgressCode::opened), 200);
  EXPECT_EQ(http_status(EgressCode::not_on_list), 403);
  EXPECT_EQ(http_status(EgressCode::address_refused), 403);
  EXPECT_EQ(http_status(EgressCode::malformed), 400);
  EXPECT_EQ(http_status(EgressCode::unresolvable), 502);
  EXPECT_EQ(http_status(EgressCode::unreachable), 502);
  EXPECT_EQ(http_status(EgressCode::too_many), 503);
  EXPECT_EQ(http_status(EgressCode::too_slow), 504);
}

TEST(EgressFrame, DoorRulesComeBackAsTheyWere) {
  const std::vector<EgressDoorRule> rules{
      {EgressDoorRule::Form::name, "a.test", {80, 443}},
      {EgressDoorRule::Form::suffix, "b.test", {5432}},
      {EgressDoorRule::Form::ipv6, "2001:db8::7", {80, 443}},
  };
  const std::string bytes = encode_door_rules(rules);
  EXPECT_EQ(decode_door_rules(bytes), rules);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(decode_door_rules(std::string_view(bytes).substr(0, cut))) << cut;
  }
  EXPECT_FALSE(decode_door_rules(bytes + "x"));
  EXPECT_EQ(decode_door_rules(encode_door_rules({})), std::vector<EgressDoorRule>{});
}

TEST(EgressFrame, DoorRulesAreBounded) {
  std::vector<EgressDoorRule> rules(1024, {EgressDoorRule::Form::name, "a", {80}});
  EXPECT_EQ(decode_door_rules(encode_door_rules(rules))->size(), 1024U);
  rules.push_back(rules[0]);
  EXPECT_THROW(encode_door_rules(rules), std::length_error);
  EXPECT_FALSE(decode_door_rules("\x01\x04"s)) << "1025 announced";
  EXPECT_THROW(
      encode_door_rules(std::vector<EgressDoorRule>{{EgressDoorRule::Form::name, "a", {}}}),
      std::length_error);
  const std::string one = "\x01\x00"s;
  EXPECT_TRUE(decode_door_rules(one + "\x00\x01"s + "a" + "\x01\x50\x00"s));
  EXPECT_FALSE(decode_door_rules(one + "\x04\x01"s + "a" + "\x01\x50\x00"s)) << "unknown form";
  EXPECT_FALSE(decode_door_rules(one + "\x00\x00"s + "\x01\x50\x00"s)) << "no host";
  EXPECT_FALSE(decode_door_rules(one + "\x00\x01"s + "a" + "\x00"s)) << "no port";
  EXPECT_FALSE(decode_door_rules(one + "\x00\x01"s + "a" + "\x01\x00\x00"s)) << "port 0";
  EXPECT_FALSE(decode_door_rules(one + "\x00\x01"s + "a" + "\x02\x50\x00\x50\x00"s)) << "twice";
}

RC_GTEST_PROP(EgressFrame, WhatIsReadIsWhatWouldBeWritten, (const std::string& bytes)) {
  if (const auto request = decode_egress_request(bytes)) {
    RC_ASSERT(body_of(encode_egress(*request)) == bytes);
  }
  if (const auto answer = decode_egress_answer(bytes)) {
    RC_ASSERT(body_of(encode_egress(*answer)) == bytes);
  }
  if (const auto rules = decode_door_rules(bytes)) {
    RC_ASSERT(encode_door_rules(*rules) == bytes);
  }
}

}  // namespace
}  // namespace casemate
