#include "casemate/host_tools/registry.h"

#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <vector>

#include "casemate/host_tools/tools_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

HostTool named(std::string name) {
  HostTool tool = echo();
  tool.name = std::move(name);
  return tool;
}

HostTool declared(std::string name, HostToolDeclaration declaration) {
  HostTool tool = named(std::move(name));
  tool.declaration = std::move(declaration);
  return tool;
}

HostToolDeclaration acting_as(DeclarationLeg<Identity> identity) {
  return {.source = std::nullopt, .sink = std::nullopt, .identity = std::move(identity)};
}

TEST(HostToolRegistry, RefusesCapsOfZero) {
  const struct {
    HostToolRegistryOptions options;
    std::string_view part;
  } cases[] = {
      {{.max_host_tool_calls_per_run = 0}, "max_host_tool_calls_per_run is 0"},
      {{.response_limits = {0, 1, 1}}, "max_bytes_per_file is 0"},
      {{.response_limits = {1, 0, 1}}, "max_total_bytes is 0"},
      {{.response_limits = {1, 1, 0}}, "max_files is 0"},
      {{.allowed_identities = {static_cast<Identity>(7)}}, "identity 7"},
  };
  for (const auto& each : cases) {
    expect_refusal<InvalidArgument>([&] { HostToolRegistry registry(each.options); }, each.part);
  }
  EXPECT_NO_THROW(
      HostToolRegistry({.max_host_tool_calls_per_run = 1, .response_limits = {1, 1, 1}}));
}

TEST(HostToolRegistry, AllowsAppAndSixteenCallsUnlessTold) {
  const HostToolRegistry registry;
  EXPECT_EQ(registry.options().allowed_identities, std::set<Identity>{Identity::app});
  EXPECT_EQ(registry.surface(), (HostToolSurface{16, kDefaultTransferLimits}));
}

TEST(HostToolRegistry, RefusesInItsOrder) {
  HostToolRegistry registry({.require_declared = RequireDeclared::yes});
  registry.register_tool(declared("taken", acting_as(Identity::app)));

  // Each lacks everything that is looked at after what it is refused for.
  HostTool tool;
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "no function");
  tool.function = echo().function;
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "empty name");
  tool.name = "\xff";
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "not UTF-8");
  tool.name = std::string(kMaxHostToolNameBytes + 1, 'x');
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); },
                                  {"has 65536 bytes; one may have 65535", "shorter name"});
  tool.name = "taken";
  tool.description = "\xff";
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); },
                                  "the description of host tool 'taken' is not UTF-8");
  tool.description = "for a test";
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "two host tools 'taken'");
  tool.name = "free";
  tool.declaration = acting_as(static_cast<Identity>(9));
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "identity 9");
  tool.declaration.reset();
  expect_refusal<HostToolNotDeclared>([&] { registry.register_tool(tool); },
                                      {"'free'", "source, sink and identity"});
  tool.declaration = acting_as(Identity::user);
  expect_refusal<HostToolIdentityNotAllowed>([&] { registry.register_tool(tool); },
                                             {"'free' acts as user", "allowed is app"});
  tool.declaration = acting_as(Identity::app);
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); },
                                  {"are no schema", "without arguments"});
  tool.parameters = R"({"type":"object","minimum":"x"})";
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "minimum must be");
  tool.parameters = R"({"type":"object","properties":{"a":{"pattern":"x"}}})";
  const std::string refused = expect_refusal<InvalidArgument>(
      [&] { registry.register_tool(tool); },
      {"'pattern' is not checked here", "docs/host-tools.md lists the keywords"});
  EXPECT_EQ(refused.find("without arguments"), std::string::npos) << refused;
  tool.parameters = kAnyArguments;
  for (const char* parameters :
       {"true", "false", "{}", R"({"type":"array"})", R"({"type":["object","null"]})"}) {
    tool.parameters = parameters;
    expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); },
                                    {"are no schema of an object", R"(say {"type":"object")"});
  }
  tool.parameters = kAnyArguments;
  using std::chrono::nanoseconds;
  constexpr nanoseconds kSevenDays = std::chrono::hours(7 * 24);
  for (const nanoseconds timeout : {nanoseconds(0), nanoseconds(-1), nanoseconds::min(),
                                    kSevenDays + nanoseconds(1), nanoseconds::max()}) {
    tool.timeout = timeout;
    expect_refusal<InvalidArgument>(
        [&] { registry.register_tool(tool); },
        {"the timeout of host tool 'free' is " + std::to_string(timeout.count()) + " ns",
         "at most 604800 s"});
  }
  tool.timeout = kSevenDays;
  tool.max_concurrency = 0;
  expect_refusal<InvalidArgument>([&] { registry.register_tool(tool); }, "max_concurrency");
  tool.max_concurrency = 1;
  EXPECT_EQ(registry.size(), 1U);
  registry.register_tool(tool);
  registry.aggregate();
  expect_refusal<InvalidArgument>([&] { registry.register_tool(HostTool{}); }, "too late");
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"free", "taken"}));
}

TEST(HostToolRegistry, NamesMayBeAnyText) {
  HostToolRegistry registry;
  for (const char* name : {"two words", "9", "übung", "a/b", "call", "\n"}) {
    registry.register_tool(named(name));
  }
  EXPECT_EQ(registry.size(), 6U);
  EXPECT_NE(registry.resolve("two words"), nullptr);
  EXPECT_EQ(registry.resolve("two  words"), nullptr);
}

TEST(HostToolRegistry, TakesTheLongestNameAndTheShortestTimeThatThereAre) {
  HostToolRegistry registry;
  HostTool tool = named(std::string(kMaxHostToolNameBytes, 'x'));
  tool.timeout = std::chrono::nanoseconds(1);
  registry.register_tool(tool);
  EXPECT_NE(registry.resolve(tool.name), nullptr);
}

TEST(HostToolRegistry, AToolWithoutADeclarationActsAsApp) {
  HostToolRegistry registry({.allowed_identities = {}});
  expect_refusal<HostToolIdentityNotAllowed>([&] { registry.register_tool(echo()); },
                                             "allowed is nothing");
  registry.register_tool(declared("pure", acting_as(std::nullopt)));
  EXPECT_EQ(registry.names(), std::vector<std::string>{"pure"});
}

TEST(HostToolRegistry, CapturesTheDeclarationAtRegistration) {
  HostToolRegistry registry;
  HostTool tool = declared("t", acting_as(Identity::app));
  registry.register_tool(tool);
  tool.declaration->identity = std::nullopt;
  EXPECT_EQ(registry.declaration_for("t")->identity.get(), Identity::app);
  EXPECT_EQ(registry.declaration_for("other"), std::nullopt);
}

TEST(HostToolRegistry, AggregateOfNothingSealsToo) {
  HostToolRegistry registry;
  EXPECT_FALSE(registry.sealed());
  EXPECT_EQ(registry.aggregate(), HostToolAggregate{});
  EXPECT_TRUE(registry.sealed());
  expect_refusal<InvalidArgument>([&] { registry.register_tool(echo()); }, "too late");
}

TEST(HostToolRegistry, AggregatesTheWeakestSourceAndEverySinkVerbatim) {
  HostToolRegistry registry({.allowed_identities = {Identity::app, Identity::user}});
  registry.register_tool(declared(
      "a", {.source = SourceIntegrity::trusted, .sink = "Internal", .identity = std::nullopt}));
  EXPECT_EQ(HostToolRegistry().aggregate().result_integrity, std::nullopt);
  registry.register_tool(
      declared("b", {.source = std::nullopt, .sink = "internal", .identity = Identity::user}));
  EXPECT_EQ(registry.aggregate(), (HostToolAggregate{.result_integrity = SourceIntegrity::trusted,
                                                     .outbound_caps = {"Internal", "internal"},
                                                     .identities = {Identity::user},
                                                     .requires_approval = true,
                                                     .has_undeclared = false}));
}

TEST(HostToolRegistry, AggregatesAToolWithoutADeclarationAsTheWorst) {
  HostToolRegistry registry;
  registry.register_tool(declared(
      "a", {.source = SourceIntegrity::trusted, .sink = std::nullopt, .identity = std::nullopt}));
  registry.register_tool(echo());
  EXPECT_EQ(registry.aggregate(), (HostToolAggregate{.result_integrity = SourceIntegrity::untrusted,
                                                     .outbound_caps = {},
                                                     .identities = {Identity::app},
                                                     .requires_approval = false,
                                                     .has_undeclared = true}));
}

TEST(HostToolRegistry, GivesNoticeOnceWithThePlaceOfTheRegistration) {
  std::vector<std::string> seen;
  Notices notices([&](std::string_view code, std::string_view, const std::source_location& where) {
    seen.push_back(std::string(code) + ":" + std::to_string(where.line()));
  });
  HostToolRegistry registry({.require_declared = RequireDeclared::yes, .notices = notices});
  EXPECT_THROW(registry.register_tool(echo()), HostToolNotDeclared);
  EXPECT_TRUE(seen.empty()) << "nothing was registered";
  const unsigned line = std::source_location::current().line() + 1;
  registry.register_tool(declared("a", acting_as(Identity::app)));
  registry.register_tool(declared("b", acting_as(Identity::app)));
  EXPECT_EQ(seen, std::vector<std::string>{"host_tools:" + std::to_string(line)});
}

}  // namespace
}  // namespace casemate
