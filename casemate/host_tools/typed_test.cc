#include "casemate/host_tools/typed.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "casemate/host_tools/run.h"

namespace casemate {
namespace {

struct Point {
  double x = 0;
  double y = 0;
  static auto fields() { return std::tuple(field("x", &Point::x), field("y", &Point::y)); }
};

struct Query {
  std::string state;
  std::optional<std::int64_t> limit;
  std::vector<Point> near;
  std::map<std::string, std::uint8_t> weights;
  bool loud = false;
  static auto fields() {
    return std::tuple(field("state", &Query::state, "two letters"), field("limit", &Query::limit),
                      field("near", &Query::near), field("weights", &Query::weights),
                      field("loud", &Query::loud));
  }
};

struct Found {
  std::vector<std::string> names;
  std::optional<Point> where;
  std::uint64_t count = 0;
  static auto fields() {
    return std::tuple(field("names", &Found::names), field("where", &Found::where),
                      field("count", &Found::count));
  }
};

struct Nothing {
  static auto fields() { return std::tuple(); }
};

std::string call(HostTool tool, std::string_view arguments) {
  const auto registry = std::make_shared<HostToolRegistry>();
  const std::string name = tool.name;
  registry->register_tool(std::move(tool));
  HostToolRun run(registry, {});
  return run.dispatch(name, arguments).text();
}

TEST(TypedHostTool, DerivesTheSchemaFromTheFields) {
  const HostTool tool =
      typed_host_tool<Query>("q", "Finds.", [](const Query& query) { return query.state; });
  EXPECT_EQ(
      tool.parameters,
      R"({"type":"object","properties":{"state":{"type":"string","description":"two letters"},)"
      R"("limit":{"type":["integer","null"],"minimum":-9223372036854775808,)"
      R"("maximum":9223372036854775807},)"
      R"("near":{"type":"array","items":{"type":"object","properties":{"x":{"type":"number"},)"
      R"("y":{"type":"number"}},"required":["x","y"],"additionalProperties":false}},)"
      R"("weights":{"type":"object","additionalProperties":{"type":"integer","minimum":0,)"
      R"("maximum":255}},"loud":{"type":"boolean"}},)"
      R"("required":["state","near","weights","loud"],"additionalProperties":false})");
}

TEST(TypedHostTool, ConvertsArgumentsAndResult) {
  const auto find = [](const Query& query) {
    Found found;
    found.names = {query.state, query.loud ? "loud" : "quiet"};
    found.where = query.near.at(0);
    found.count = static_cast<std::uint64_t>(query.limit.value_or(7)) + query.weights.at("a");
    return found;
  };
  EXPECT_EQ(call(typed_host_tool<Query>("q", "", find),
                 R"({"state":"WA","near":[{"x":1,"y":2.5}],"weights":{"a":255},"loud":true})"),
            R"({"names":["WA","loud"],"where":{"x":1.0,"y":2.5},"count":262})");
  EXPECT_EQ(call(typed_host_tool<Query>("q", "", find),
                 R"({"state":"","near":[{"x":1e0,"y":-1}],"weights":{"a":2.0},"loud":false,
                     "limit":9223372036854775807})"),
            R"({"names":["","quiet"],"where":{"x":1.0,"y":-1.0},"count":9223372036854775809})");
}

TEST(TypedHostTool, RefusesWhatAFieldCannotHold) {
  const auto find = [](const Query&) { return true; };
  const auto text = [&](std::string_view arguments) {
    return call(typed_host_tool<Query>("q", "", find), arguments);
  };
  EXPECT_EQ(text(R"({"state":"","near":[],"weights":{"a":256},"loud":true})"),
            "Error: host tool 'q' was not called: argument 'weights.a' must be at most 255.");
  EXPECT_EQ(text(R"({"state":"","near":[],"weights":{},"loud":true,"limit":9223372036854775808})"),
            "Error: host tool 'q' was not called: argument 'limit' must be at most "
            "9223372036854775807.");
  EXPECT_EQ(text(R"({"state":"","near":[],"weights":{},"loud":true,"limit":null})"), "true");
}

TEST(TypedHostTool, TakesTheContextAndNoArguments) {
  HostToolRegistryOptions options;
  const auto registry = std::make_shared<HostToolRegistry>(options);
  registry->register_tool(typed_host_tool<Nothing>(
      "who", "",
      [](const Nothing&, const HostToolContext& context) { return context.caller.key.scope; }));
  HostToolRun run(registry, {.key = {"tenant", "t", "a"}});
  EXPECT_EQ(run.dispatch("who", "{}").text(), "\"tenant\"");
  EXPECT_EQ(run.dispatch("who", "null").text(), "\"tenant\"");
  EXPECT_FALSE(run.dispatch("who", R"({"x":1})").ok());
}

}  // namespace
}  // namespace casemate
