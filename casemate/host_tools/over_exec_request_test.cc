#include "casemate/host_tools/over_exec_request.h"

#include <gtest/gtest.h>

#include <string>

namespace casemate {
namespace {

std::string refusal_of_request(std::string_view text) {
  const OverExecMessage message = read_over_exec_request(text);
  const auto* refused = std::get_if<HostToolAnswer>(&message);
  return refused != nullptr && !refused->ok() ? refused->text() : "not refused";
}

TEST(OverExecRequest, ReadsACall) {
  const auto call = std::get<OverExecRequest>(read_over_exec_request(
      R"({"id": "0007", "name": "lookup", "arguments": {"key": [1, 18446744073709551615]}})"));
  EXPECT_TRUE(call.has_name);
  EXPECT_EQ(call.name, "lookup");
  EXPECT_EQ(call.arguments, R"({"key":[1,18446744073709551615]})");
}

TEST(OverExecRequest, IgnoresTheIdAndWhatItDoesNotKnow) {
  const auto call = std::get<OverExecRequest>(
      read_over_exec_request(R"({"id": [], "name": "f", "abandoned": false, "more": 1})"));
  EXPECT_EQ(call.name, "f");
  EXPECT_EQ(call.arguments, "null");
}

TEST(OverExecRequest, KnowsOneThatWasAbandoned) {
  EXPECT_TRUE(std::holds_alternative<OverExecAbandoned>(
      read_over_exec_request(R"({"id": "0001", "abandoned": true})")));
  EXPECT_TRUE(std::holds_alternative<OverExecRequest>(
      read_over_exec_request(R"({"id": "0001", "abandoned": 1})")));
}

TEST(OverExecRequest, NamesTheTypeOfANameThatIsNoStringAndNeverTheValue) {
  const auto call = std::get<OverExecRequest>(read_over_exec_request(R"({"name": 4711})"));
  EXPECT_FALSE(call.has_name);
  EXPECT_EQ(call.name, "a number");
  EXPECT_EQ(std::get<OverExecRequest>(read_over_exec_request("{}")).name, "nothing");
}

TEST(OverExecRequest, RefusesWhatIsNoJsonObject) {
  for (const std::string& text :
       {std::string("{"), std::string("{\"name\": \"f\xff\"}"), std::string("NaN"),
        std::string("{\"a\": 1, \"a\": 2}"), std::string("{\"a\": 18446744073709551616}"),
        std::string("{} {}"), std::string("\xEF\xBB\xBF{}"),
        std::string(65, '[') + std::string(65, ']')}) {
    EXPECT_NE(refusal_of_request(text).find("Error: the request is no JSON that is accepted"),
              std::string::npos)
        << refusal_of_request(text);
  }
  EXPECT_EQ(refusal_of_request("[]"), "Error: the request is an array; it must be an object.");
  EXPECT_EQ(refusal_of_request("null"), "Error: the request is null; it must be an object.");
}

TEST(OverExecRequest, AResponseIsOneOfTwoObjects) {
  const std::string value = over_exec_response(HostToolAnswer::value("[1,\"\xC3\xA9\"]"));
  EXPECT_EQ(value, "{\"value\": [1,\"\xC3\xA9\"]}");
  EXPECT_EQ(value.size(), 8 + kOverExecFramingBytes);
  EXPECT_EQ(over_exec_response(HostToolAnswer::refused("no \"x\".")),
            R"({"refusal":"Error: no \"x\"."})");
}

}  // namespace
}  // namespace casemate
