#include "casemate/tool/parameters.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "casemate/tool/refusals.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

constexpr std::string_view kSchema = R"({
  "type": "object",
  "properties": {
    "code": {"type": "string", "description": "the program"},
    "files": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
    "deep": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
             "additionalProperties": false},
    "ratio": {"type": "number"},
    "loud": {"type": "boolean"}
  },
  "required": ["code"],
  "additionalProperties": false
})";

std::string refusal_of(std::string_view arguments) {
  return expect_refusal<ModelFacingRefusal>(
      [&] { ToolParameters::parse(kSchema).check(arguments); });
}

TEST(ToolParameters, RefuseTextThatIsNoJson) {
  for (const char* text : {"", "{", "NOT JSON", "{\"code\":\"\xff\"}", "{\"code\":1}{}",
                           "{\"code\":\"a\",\"code\":\"b\"}"}) {
    EXPECT_NE(refusal_of(text).find("not valid JSON"), std::string::npos) << text;
  }
}

TEST(ToolParameters, RefuseArgumentsThatAreNoObject) {
  EXPECT_EQ(refusal_of("null"), "the arguments must be an object, not null. ()");
  EXPECT_EQ(refusal_of("[]"), "the arguments must be an object, not a list. ()");
}

TEST(ToolParameters, NameTheUnknownParameterAndTheKnownOnes) {
  EXPECT_EQ(refusal_of(R"({"code":"","timeout":"5"})"),
            "there is no parameter 'timeout'; there is code, files, deep, ratio, loud. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","deep":{"n":1,"scope":"x"}})"),
            "there is no parameter 'deep.scope'; there is n. ()");
}

TEST(ToolParameters, EscapeAndBoundAnUnknownName) {
  const std::string text = refusal_of("{\"a\\nb" + std::string(1000, 'x') + "\":1}");
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_LT(text.size(), 300U);
}

TEST(ToolParameters, NameTheParameterOfTheWrongTypeAndNotItsValue) {
  EXPECT_EQ(refusal_of(R"({"code":7})"), "parameter 'code' must be a string, not an integer. ()");
  EXPECT_EQ(refusal_of(R"({"code":null})"), "parameter 'code' must be a string, not null. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","files":"secret"})"),
            "parameter 'files' must be a list, not a string. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","files":["a",1.5]})"),
            "parameter 'files[1]' must be a string, not a number. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","deep":{"n":1.5}})"),
            "parameter 'deep.n' must be an integer, not a number. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","ratio":true})"),
            "parameter 'ratio' must be a number, not true or false. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","loud":{}})"),
            "parameter 'loud' must be true or false, not an object. ()");
}

TEST(ToolParameters, NameTheMissingParameter) {
  EXPECT_EQ(refusal_of("{}"), "parameter 'code' is missing. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","deep":{}})"), "parameter 'deep.n' is missing. ()");
}

TEST(ToolParameters, HoldTheBoundsOfAList) {
  const ToolParameters parameters = ToolParameters::parse(kSchema);
  EXPECT_NO_THROW(parameters.check(R"({"code":"","files":["a"]})"));
  EXPECT_NO_THROW(parameters.check(R"({"code":"","files":["a","b"]})"));
  EXPECT_EQ(refusal_of(R"({"code":"","files":[]})"),
            "parameter 'files' has 0 items; it takes at least 1. ()");
  EXPECT_EQ(refusal_of(R"({"code":"","files":["a","b","c"]})"),
            "parameter 'files' has 3 items; it takes at most 2. ()");
}

TEST(ToolParameters, GiveArgumentsThatFit) {
  const auto arguments = ToolParameters::parse(kSchema).check(
      R"( {"code":"x = 1","files":["a"],"deep":{"n":-1},"ratio":2,"loud":false} )");
  EXPECT_EQ(arguments.at("code").get_string(), "x = 1");
  EXPECT_EQ(arguments.at("deep").at("n").get_int64(), -1);
}

TEST(ToolParameters, KeepTheTextOfTheSchema) {
  EXPECT_EQ(ToolParameters::parse(kSchema).text(), kSchema);
}

TEST(ToolParameters, RefuseASchemaThatWouldNotBeHeld) {
  const struct {
    std::string_view schema;
    std::string_view part;
  } cases[] = {
      {"{", "no JSON"},
      {"[]", "a schema must be an object"},
      {"true", "must be one of an object"},
      {R"({"type":"string"})", "must be one of an object"},
      {R"({"type":["object"],"additionalProperties":false})", "must be one of an object"},
      {R"({"type":"object"})", "additionalProperties must be false"},
      {R"({"type":"object","additionalProperties":true})", "additionalProperties must be false"},
      {R"({"type":"object","additionalProperties":false,"pattern":"a"})", "'pattern'"},
      {R"({"type":"object","additionalProperties":false,"properties":[]})", "properties"},
      {R"({"type":"object","additionalProperties":false,"properties":{"a":{"type":"date"}}})",
       "at /properties/a: type"},
      {R"({"type":"object","additionalProperties":false,
           "properties":{"a":{"type":"array","items":{"type":"string","format":"uri"}}}})",
       "'format'"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.schema);
    expect_refusal<InvalidArgument>([&] { ToolParameters::parse(each.schema); }, each.part);
  }
}

}  // namespace
}  // namespace casemate
