#include "casemate/base/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

namespace casemate {
namespace {

using namespace std::string_literals;

std::string refusal_of(std::string_view text, const JsonBounds& bounds = {}) {
  try {
    parse_json(text, bounds);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "accepted";
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, RefusesWhatIsNoJson) {
  for (const std::string& text :
       {""s,          " "s,   "{"s,      "[1,]"s,    "{\"a\":1,}"s, "'a'"s, "{a:1}"s,
        "// c\n1"s,   "01"s,  "1."s,     ".5"s,      "+1"s,         "NaN"s, "Infinity"s,
        "-Infinity"s, "nul"s, "\"\t\""s, "\"\\x\""s, "1 2"s,        "[]x"s, "\xEF\xBB\xBF{}"s,
        "\0"s,        "1\0"s}) {
    EXPECT_NE(refusal_of(text).find("malformed JSON at byte"), std::string::npos) << text;
  }
}

TEST(Json, RefusesInvalidUtf8AndLoneSurrogates) {
  EXPECT_NE(refusal_of("\"\xFF\""), "accepted");
  EXPECT_NE(refusal_of("{\"\xC0\xAF\":1}"), "accepted");
  EXPECT_NE(refusal_of("\"\xED\xA0\x80\""), "accepted");
  EXPECT_NE(refusal_of(R"("\ud800")"), "accepted");
  EXPECT_NE(refusal_of(R"("\udc00")"), "accepted");
  EXPECT_EQ(parse_json(R"("\ud83d\ude00")"), "\U0001F600");
}

TEST(Json, CountsTheValuesOfATextWithoutMakingThem) {
  EXPECT_EQ(json_values_at_most("17"), 1U);
  EXPECT_EQ(json_values_at_most("[1,[2],\"a,[{\\\",\"]"), 5U);
  EXPECT_EQ(json_values_at_most(R"({"a":1,"b":{"c":[]}})"), 5U);
  EXPECT_EQ(json_values_at_most("\"\\"), 1U);
}

TEST(Json, HoldsTheBoundOfValues) {
  EXPECT_EQ(refusal_of("[1,2,3]", {.max_values = 4}), "accepted");
  EXPECT_EQ(refusal_of("[1,2,3,4,5,6]", {.max_values = 6}),
            "JSON of 7 values is over the limit of 6");
  EXPECT_EQ(refusal_of("[[[[[[]]]]]]", {.max_values = 5}),
            "JSON of 7 values is over the limit of 5");
  std::string many = "[0";
  while (many.size() < 2 * JsonBounds().max_values - 2) many += ",0";
  EXPECT_EQ(refusal_of(many + "]"), "accepted");
  EXPECT_NE(refusal_of(many + ",0]").find("is over the limit of 262144"), std::string::npos);
}

TEST(Json, WritesNothingDeeperThanItReads) {
  const auto nested = [](int depth) {
    boost::json::value value;
    for (int i = 0; i < depth; ++i) {
      boost::json::array outer;
      outer.push_back(std::move(value));
      value = std::move(outer);
    }
    return value;
  };
  EXPECT_EQ(parse_json(serialise_json(nested(64))), nested(64));
  EXPECT_THROW(serialise_json(nested(65)), JsonError);
  boost::json::value deep = nested(1'000'000);
  EXPECT_THROW(serialise_json(deep), JsonError);
  discard_json(std::move(deep));
  boost::json::value members = nullptr;
  for (int i = 0; i < 1'000'000; ++i) {
    boost::json::object outer;
    outer["a"] = std::move(members);
    members = std::move(outer);
  }
  discard_json(std::move(members));
}

TEST(Json, RefusesAKeyThatStandsTwice) {
  EXPECT_NE(refusal_of(R"({"a":1,"a":2})").find("twice"), std::string::npos);
  EXPECT_NE(refusal_of(R"({"a":1,"\u0061":2})").find("twice"), std::string::npos);
  EXPECT_EQ(refusal_of(R"({"a":{"a":1},"b":{"a":1}})"), "accepted");
}

TEST(Json, NeverRoundsAnInteger) {
  EXPECT_EQ(parse_json("9223372036854775807").as_int64(), 9223372036854775807LL);
  EXPECT_EQ(parse_json("-9223372036854775808").as_int64(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse_json("18446744073709551615").as_uint64(), 18446744073709551615ULL);
  EXPECT_NE(refusal_of("18446744073709551616").find("outside 64 bits"), std::string::npos);
  EXPECT_NE(refusal_of("-9223372036854775809").find("outside 64 bits"), std::string::npos);
  EXPECT_NE(refusal_of("1"s + std::string(400, '0')).find("outside 64 bits"), std::string::npos);
}

TEST(Json, RefusesANumberThatOverflowsAndReadsTheRestExactly) {
  EXPECT_NE(refusal_of("1e309").find("overflows"), std::string::npos);
  EXPECT_NE(refusal_of("-1e999").find("overflows"), std::string::npos);
  EXPECT_NE(refusal_of("1e99999999999999999999"), "accepted");
  EXPECT_EQ(parse_json("1.7976931348623157e308").as_double(), std::numeric_limits<double>::max());
  EXPECT_EQ(parse_json("0.1").as_double(), 0.1);
  EXPECT_EQ(parse_json("8.41e21").as_double(), 8.41e21);
  EXPECT_EQ(parse_json("5e-324").as_double(), 5e-324);
  EXPECT_EQ(parse_json("1e-400").as_double(), 0.0);
}

TEST(Json, DepthAtTheBoundPassesAndOneMoreIsRefused) {
  EXPECT_EQ(refusal_of(nested(64)), "accepted");
  EXPECT_NE(refusal_of(nested(65)), "accepted");
  EXPECT_NE(refusal_of(std::string(200000, '[')), "accepted");
  EXPECT_EQ(refusal_of("[{\"a\":1}]", {.max_depth = 2}), "accepted");
  EXPECT_NE(refusal_of("[{\"a\":[]}]", {.max_depth = 2}), "accepted");
}

TEST(Json, SizeAtTheBoundPassesAndOneMoreIsRefused) {
  EXPECT_EQ(refusal_of("[1,2]", {.max_bytes = 5}), "accepted");
  EXPECT_EQ(refusal_of("[1,22]", {.max_bytes = 5}), "JSON of 6 bytes is over the limit of 5");
}

TEST(Json, ReadsEveryKindOfValue) {
  const boost::json::value value =
      parse_json(" {\"a\":[1,-2,3.5,true,false,null,\"x\\n\\u20ac\",{}],\"\":[]} \r\n\t");
  EXPECT_EQ(serialise_json(value), "{\"a\":[1,-2,3.5,true,false,null,\"x\\n\u20AC\",{}],\"\":[]}");
}

TEST(Json, RefusesToWriteWhatJsonCannotHold) {
  EXPECT_THROW(serialise_json(boost::json::value(std::nan(""))), JsonError);
  EXPECT_THROW(serialise_json(boost::json::array{std::numeric_limits<double>::infinity()}),
               JsonError);
}

TEST(Json, WritesValidUtf8OnOneLineWhateverAStringHolds) {
  EXPECT_EQ(serialise_json(boost::json::object{{"k\xFF", "\xE2\x82\n\r\t\"\\\x01\x7f"}}),
            "{\"k\uFFFD\":\"\uFFFD\\n\\r\\t\\\"\\\\\\u0001\x7f\"}");
  EXPECT_EQ(serialise_json(boost::json::value("a\0b"s)), "\"a\\u0000b\"");
}

TEST(Json, WritesNumbersThatReadBackTheSame) {
  EXPECT_EQ(serialise_json(12.25), "12.25");
  EXPECT_EQ(serialise_json(3.0), "3.0");
  EXPECT_EQ(serialise_json(1e300), "1e+300");
  EXPECT_EQ(serialise_json(18446744073709551615ULL), "18446744073709551615");
  for (const double number : {0.1, 1e-7, 5e-324, 1e300, -0.0, 123456789.125}) {
    EXPECT_EQ(parse_json(serialise_json(number)).as_double(), number);
  }
}

}  // namespace
}  // namespace casemate
