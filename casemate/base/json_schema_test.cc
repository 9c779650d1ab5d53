#include "casemate/base/json_schema.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "casemate/base/json.h"

namespace casemate {
namespace {

// What is said of `value`, or "fits".
std::string verdict(std::string_view schema, std::string_view value) {
  const auto mismatch = JsonSchema::parse(schema).check(parse_json(value));
  return mismatch ? mismatch->sentence("argument") : "fits";
}

struct Case {
  std::string_view schema;
  std::string_view value;
  std::string_view wanted;
};

void expect_all(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    EXPECT_EQ(verdict(each.schema, each.value), each.wanted) << each.schema << " " << each.value;
  }
}

TEST(JsonSchema, RefusesWhatItWouldNotHold) {
  const struct {
    std::string schema;
    std::string_view part;
  } cases[] = {
      {"{", "no JSON"},
      {R"({"type":"object","type":"object"})", "no JSON"},
      {"7", "object, true or false"},
      {R"({"typ":"string"})", "'typ'"},
      {R"({"pattern":"a+"})", "'pattern' is not checked"},
      {R"({"format":"uri"})", "'format' is not checked"},
      {R"({"properties":{"a/b":{"contains":{}}}})", "/properties/a~1b"},
      {R"({"type":"date"})", "type must be"},
      {R"({"type":[]})", "type must name"},
      {R"({"type":["string",1]})", "type must be"},
      {R"({"enum":[]})", "enum"},
      {R"({"enum":"a"})", "enum"},
      {R"({"required":"a"})", "required"},
      {R"({"required":[1]})", "required"},
      {R"({"properties":[]})", "properties"},
      {R"({"properties":{"a":1}})", "/properties/a: a schema must be"},
      {R"({"items":[]})", "/items: a schema must be"},
      {R"({"prefixItems":[]})", "prefixItems"},
      {R"({"anyOf":{}})", "anyOf"},
      {R"({"minLength":-1})", "minLength must be an integer of at least 0"},
      {R"({"maxItems":1.5})", "maxItems must be an integer"},
      {R"({"maxProperties":"1"})", "maxProperties must be an integer"},
      {R"({"minimum":"1"})", "minimum must be a number"},
      {R"({"multipleOf":0})", "multipleOf"},
      {R"({"multipleOf":0.1})", "multipleOf"},
      {R"({"uniqueItems":1})", "uniqueItems"},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#"})", "2020-12"},
      {R"({"properties":{"a":{"$id":"x"}}})", "'$id'"},
      {R"({"$ref":"other.json"})", "'#'"},
      {R"({"$ref":1})", "'#'"},
      {R"({"$ref":"#/$defs/a"})", "where no schema is"},
      {R"({"$defs":{"a":{}},"$ref":"#/$defs"})", "where no schema is"},
      {R"({"default":{},"$ref":"#/default"})", "where no schema is"},
  };
  for (const auto& each : cases) {
    try {
      JsonSchema::parse(each.schema);
      ADD_FAILURE() << each.schema;
    } catch (const JsonSchemaError& error) {
      EXPECT_NE(std::string(error.what()).find(each.part), std::string::npos)
          << each.schema << ": " << error.what();
    }
  }
}

TEST(JsonSchema, RefusesReferencesInACircle) {
  for (const char* text : {
           R"({"$ref":"#"})",
           R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
           R"({"allOf":[{"anyOf":[{"not":{"$ref":"#"}}]}]})",
           R"({"$defs":{"a":{"oneOf":[true,{"$ref":"#/$defs/a"}]}}})",
       }) {
    EXPECT_THROW(JsonSchema::parse(text), JsonSchemaError) << text;
  }
}

// $defs a0 .. a<count>, each by way of the next.
std::string chain(int count) {
  std::string text = R"({"$defs":{)";
  for (int i = 0; i < count; ++i) {
    text += "\"a" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/a" + std::to_string(i + 1) + "\"},";
  }
  return text + "\"a" + std::to_string(count) + "\":{\"type\":\"null\"}}}";
}

TEST(JsonSchema, BoundsHowManySchemasStandForOneValue) {
  EXPECT_NO_THROW(JsonSchema::parse(chain(JsonSchema::kMaxStacked - 1)));
  EXPECT_THROW(JsonSchema::parse(chain(JsonSchema::kMaxStacked)), JsonSchemaError);
}

TEST(JsonSchema, BoundsTheNumberOfSchemas) {
  const auto with = [](std::size_t count) {
    std::string text = R"({"prefixItems":[true)";
    for (std::size_t i = 1; i < count; ++i) text += ",true";
    return text + "]}";
  };
  EXPECT_NO_THROW(JsonSchema::parse(with(JsonSchema::kMaxSchemas - 1)));
  EXPECT_THROW(JsonSchema::parse(with(JsonSchema::kMaxSchemas)), JsonSchemaError);
}

TEST(JsonSchema, HoldsTypes) {
  expect_all({
      {R"({"type":"string"})", R"("a")", "fits"},
      {R"({"type":"string"})", "1", "the arguments must be a string, not an integer."},
      {R"({"type":"integer"})", "1.0", "fits"},
      {R"({"type":"integer"})", "1e3", "fits"},
      {R"({"type":"integer"})", "18446744073709551615", "fits"},
      {R"({"type":"integer"})", "1.5", "the arguments must be an integer, not a number."},
      {R"({"type":"number"})", "1", "fits"},
      {R"({"type":"number"})", "true", "the arguments must be a number, not true or false."},
      {R"({"type":["integer","null"]})", "null", "fits"},
      {R"({"type":["integer","null"]})", "[]",
       "the arguments must be an integer or null, not a list."},
      {R"({"type":["number","integer"]})", "{}", "the arguments must be a number, not an object."},
      {"true", "{}", "fits"},
      {"false", "{}", "the arguments are not allowed."},
      {"{}", "[1,null]", "fits"},
  });
}

TEST(JsonSchema, HoldsObjects) {
  constexpr std::string_view kSchema = R"({"type":"object","required":["b"],
    "properties":{"b":{"type":"string"},"a":{"type":"object","properties":{"n":{"type":"integer"}},
    "required":["n"],"additionalProperties":{"type":"null"}}},"additionalProperties":false})";
  expect_all({
      {kSchema, R"({"b":""})", "fits"},
      {kSchema, R"({"b":"","a":{"n":1,"other":null}})", "fits"},
      {kSchema, "{}", "argument 'b' is missing."},
      {kSchema, R"({"b":7})", "argument 'b' must be a string, not an integer."},
      {kSchema, R"({"b":"","a":{}})", "argument 'a.n' is missing."},
      {kSchema, R"({"b":"","a":{"n":1,"x":2}})", "argument 'a.x' must be null, not an integer."},
      {kSchema, R"({"b":"","c":1})", "there is no argument 'c'; there is b, a."},
      {R"({"additionalProperties":false})", R"({"c":1})", "there is no argument 'c'."},
      {R"({"minProperties":1,"maxProperties":1})", "{}",
       "the arguments have 0 members; it takes at least 1."},
      {R"({"minProperties":1,"maxProperties":1})", R"({"a":1})", "fits"},
      {R"({"maxProperties":1})", R"({"a":1,"b":1})",
       "the arguments have 2 members; it takes at most 1."},
      {R"({"properties":{"a/b~":{"type":"null"}}})", R"({"a/b~":1})",
       "argument 'a/b~' must be null, not an integer."},
  });
}

TEST(JsonSchema, HoldsArrays) {
  constexpr std::string_view kPair =
      R"({"prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})";
  expect_all({
      {R"({"items":{"type":"string"}})", R"(["a","b"])", "fits"},
      {R"({"properties":{"l":{"items":{"type":"string"}}}})", R"({"l":["a",1]})",
       "argument 'l[1]' must be a string, not an integer."},
      {kPair, R"(["a",1])", "fits"},
      {kPair, R"(["a"])", "fits"},
      {kPair, R"(["a",1,2])", "argument '[2]' is not allowed."},
      {R"({"minItems":2,"maxItems":2})", "[1,2]", "fits"},
      {R"({"minItems":2})", "[1]", "the arguments have 1 items; it takes at least 2."},
      {R"({"maxItems":2})", "[1,2,3]", "the arguments have 3 items; it takes at most 2."},
      {R"({"uniqueItems":true})", R"([1,2,"1",true,[1],{"a":1}])", "fits"},
      {R"({"uniqueItems":true})", "[1,2,1.0]", "the arguments have an item twice."},
      {R"({"uniqueItems":true})", R"([{"a":1,"b":[2]},{"b":[2],"a":1}])",
       "the arguments have an item twice."},
      {R"({"uniqueItems":true})", "[0,false]", "fits"},
      {R"({"uniqueItems":true})", "[9007199254740993,9007199254740992.0]", "fits"},
      {R"({"uniqueItems":false})", "[1,1]", "fits"},
  });
}

TEST(JsonSchema, HoldsNumbersExactly) {
  expect_all({
      {R"({"minimum":1,"maximum":3})", "1", "fits"},
      {R"({"minimum":1,"maximum":3})", "3.0", "fits"},
      {R"({"minimum":1})", "0.999", "the arguments must be at least 1."},
      {R"({"maximum":3})", "3.001", "the arguments must be at most 3."},
      {R"({"exclusiveMinimum":1})", "1", "the arguments must be above 1."},
      {R"({"exclusiveMaximum":3})", "3", "the arguments must be below 3."},
      {R"({"exclusiveMinimum":1,"exclusiveMaximum":3})", "2", "fits"},
      {R"({"maximum":9007199254740992})", "9007199254740993",
       "the arguments must be at most 9007199254740992."},
      {R"({"maximum":9223372036854775807})", "9223372036854775808",
       "the arguments must be at most 9223372036854775807."},
      {R"({"minimum":0})", "-0.0", "fits"},
      {R"({"multipleOf":5})", "-10", "fits"},
      {R"({"multipleOf":5})", "10.0", "fits"},
      {R"({"multipleOf":5})", "18446744073709551615", "fits"},
      {R"({"multipleOf":5})", "7", "the arguments must be a multiple of 5."},
      {R"({"multipleOf":5})", "5.5", "the arguments must be a multiple of 5."},
      {R"({"minimum":1})", R"("a string")", "fits"},
  });
}

TEST(JsonSchema, CountsCharactersNotBytes) {
  expect_all({
      {R"({"minLength":2,"maxLength":2})", R"("äé")", "fits"},
      {R"({"maxLength":1})", R"("\ud83d\ude00")", "fits"},
      {R"({"maxLength":1})", R"("ab")", "the arguments have 2 characters; it takes at most 1."},
      {R"({"minLength":2})", R"("ä")", "the arguments have 1 characters; it takes at least 2."},
  });
}

TEST(JsonSchema, HoldsEnumAndConst) {
  expect_all({
      {R"({"enum":["a",1,null]})", "1.0", "fits"},
      {R"({"enum":["a",1,null]})", R"("b")", R"(the arguments must be one of: "a", 1, null.)"},
      {R"({"const":{"a":1,"b":2}})", R"({"b":2,"a":1})", "fits"},
      {R"({"const":[1,2]})", "[2,1]", "the arguments must be one of: [1,2]."},
      {R"({"enum":[1,2],"const":2})", "2", "fits"},
      {R"({"const":2,"enum":[1,2]})", "1", "the arguments must be one of: 2."},
      {R"({"const":false})", "0", "the arguments must be one of: false."},
  });
}

TEST(JsonSchema, HoldsCombinations) {
  expect_all({
      {R"({"allOf":[{"minimum":1},{"maximum":2}]})", "2", "fits"},
      {R"({"allOf":[{"minimum":1},{"maximum":2}]})", "3", "the arguments must be at most 2."},
      {R"({"anyOf":[{"type":"string"},{"type":"null"}]})", "null", "fits"},
      {R"({"anyOf":[{"type":"string"},{"type":"null"}]})", "1",
       "the arguments fit none of the alternatives."},
      {R"({"oneOf":[{"minimum":1},{"maximum":2}]})", "0", "fits"},
      {R"({"oneOf":[{"minimum":1},{"maximum":2}]})", "2",
       "the arguments fit more than one of the alternatives."},
      {R"({"oneOf":[{"type":"null"},{"type":"string"}]})", "2",
       "the arguments fit none of the alternatives."},
      {R"({"not":{"type":"null"}})", "1", "fits"},
      {R"({"not":{"type":"null"}})", "null", "the arguments are not allowed."},
      {R"({"anyOf":[{"properties":{"a":{"type":"null"}},"additionalProperties":false},
                    {"properties":{"b":{"type":"null"}},"additionalProperties":false}]})",
       R"({"b":null})", "fits"},
  });
}

TEST(JsonSchema, FollowsReferencesAlsoIntoThemselvesThroughTheValue) {
  constexpr std::string_view kTree = R"({"$id":"https://example.org/tree",
    "$schema":"https://json-schema.org/draft/2020-12/schema","$comment":"a tree",
    "properties":{"left":{"$ref":"#"},"right":{"$ref":"#"},"n":{"$ref":"#/$defs/a%20count~1"}},
    "$defs":{"a count/":{"type":"integer","title":"how many"}},
    "required":["n"],"additionalProperties":false})";
  expect_all({
      {kTree, R"({"n":1,"left":{"n":2,"right":{"n":3}}})", "fits"},
      {kTree, R"({"n":1,"left":{"n":2,"right":{}}})", "argument 'left.right.n' is missing."},
      {kTree, R"({"n":1,"left":{"n":"2"}})", "argument 'left.n' must be an integer, not a string."},
      {R"({"$ref":"#/$defs/a","minimum":2,"$defs":{"a":{"type":"integer"}}})", "1",
       "the arguments must be at least 2."},
  });
}

TEST(JsonSchema, GivesUpOnWhatWouldTakeForEver) {
  // Each level is looked at twice for every time that the level above is.
  constexpr std::string_view kSchema = R"({"anyOf":[
    {"type":"object","properties":{"a":{"$ref":"#"}},"minProperties":9},
    {"type":"object","properties":{"a":{"$ref":"#"}},"minProperties":8}]})";
  const auto nested = [](int depth) {
    std::string value = "{}";
    for (int level = 1; level < depth; ++level) value = "{\"a\":" + value + "}";
    return value;
  };
  EXPECT_EQ(verdict(kSchema, nested(4)), "the arguments fit none of the alternatives.");
  EXPECT_EQ(verdict(kSchema, nested(60)),
            "the arguments take too long to compare with what is expected.");
}

TEST(JsonSchema, NeverRepeatsAValueAndCutsKeys) {
  const std::string long_key(1000, 'k');
  const std::string text = verdict(R"({"additionalProperties":{"type":"integer"}})",
                                   "{\"" + long_key + "\":\"secret\"}");
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_LT(text.size(), 200U);
  const std::string control = verdict(R"({"additionalProperties":false})", R"({"a\nb":1})");
  EXPECT_EQ(control.find('\n'), std::string::npos);
}

TEST(JsonSchema, KeepsItsText) { EXPECT_EQ(JsonSchema::parse(" {} ").text(), " {} "); }

}  // namespace
}  // namespace casemate
