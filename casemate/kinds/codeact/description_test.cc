#include "casemate/kinds/codeact/description.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>

#include "casemate/core/host_pattern.h"
#include "casemate/tool/parameters.h"
#include "tests/support/golden.h"

namespace casemate::codeact {
namespace {

// What models read: tests/golden/codeact, one file a combination.
class Description : public testing::TestWithParam<std::tuple<SharedFiles, CodeactOutputs>> {};

TEST_P(Description, IsWhatAReviewerRead) {
  const auto [files, outputs] = GetParam();
  CodeactSpecOptions options;
  options.outputs = outputs;
  expect_golden(fmt::format("codeact/description_{}_{}.txt",
                            files == SharedFiles::yes ? "files" : "no_files", to_string(outputs)),
                tool_description(codeact_sandbox_spec(options), files, outputs) + "\n\n" +
                    tool_parameters(files, outputs));
}

INSTANTIATE_TEST_SUITE_P(EachCombination, Description,
                         testing::Combine(testing::Values(SharedFiles::no, SharedFiles::yes),
                                          testing::Values(CodeactOutputs::none,
                                                          CodeactOutputs::declared,
                                                          CodeactOutputs::manifest)));

std::shared_ptr<HostToolRegistry> two_tools() {
  auto registry = std::make_shared<HostToolRegistry>(
      HostToolRegistryOptions{.max_host_tool_calls_per_run = 32});
  HostTool stores;
  stores.name = "stores";
  stores.description = "Ids of the stores\nof a state.";
  stores.parameters = R"({"type": "object", "properties": {"state": {"type": "string"}},
                          "required": ["state"], "additionalProperties": false})";
  stores.function = [](const auto&, const auto&) { return boost::json::value(1); };
  HostTool odd = stores;
  odd.name = "odd \"name\"";
  odd.description = "Anything.";
  odd.parameters = R"({"type": "object"})";
  registry->register_tool(stores);
  registry->register_tool(odd);
  return registry;
}

class DescriptionWithHostTools : public Description {};

TEST_P(DescriptionWithHostTools, IsWhatAReviewerRead) {
  const auto [files, outputs] = GetParam();
  CodeactSpecOptions options;
  options.outputs = outputs;
  options.host_tools = two_tools();
  expect_golden(
      fmt::format("codeact/description_tools_{}_{}.txt",
                  files == SharedFiles::yes ? "files" : "no_files", to_string(outputs)),
      tool_description(codeact_sandbox_spec(options), files, outputs, options.host_tools.get()) +
          "\n\n" + tool_parameters(files, outputs));
}

INSTANTIATE_TEST_SUITE_P(EachCombination, DescriptionWithHostTools,
                         testing::Combine(testing::Values(SharedFiles::no, SharedFiles::yes),
                                          testing::Values(CodeactOutputs::none,
                                                          CodeactOutputs::declared,
                                                          CodeactOutputs::manifest)));

class DescriptionWithHosts : public Description {
 protected:
  static CodeactSpecOptions options_for(CodeactOutputs outputs) {
    CodeactSpecOptions options;
    options.outputs = outputs;
    options.egress_allow = {HostPattern::parse("pypi.org"),
                            HostPattern::parse("*.example.org:8443")};
    return options;
  }
};

TEST_P(DescriptionWithHosts, IsWhatAReviewerRead) {
  const auto [files, outputs] = GetParam();
  const CodeactSpecOptions options = options_for(outputs);
  expect_golden(fmt::format("codeact/description_hosts_{}_{}.txt",
                            files == SharedFiles::yes ? "files" : "no_files", to_string(outputs)),
                tool_description(codeact_sandbox_spec(options), files, outputs) + "\n\n" +
                    tool_parameters(files, outputs));
}

TEST_P(DescriptionWithHosts, IsWhatAReviewerReadBesideHostTools) {
  const auto [files, outputs] = GetParam();
  CodeactSpecOptions options = options_for(outputs);
  options.host_tools = two_tools();
  expect_golden(
      fmt::format("codeact/description_hosts_tools_{}_{}.txt",
                  files == SharedFiles::yes ? "files" : "no_files", to_string(outputs)),
      tool_description(codeact_sandbox_spec(options), files, outputs, options.host_tools.get()) +
          "\n\n" + tool_parameters(files, outputs));
}

INSTANTIATE_TEST_SUITE_P(EachCombination, DescriptionWithHosts,
                         testing::Combine(testing::Values(SharedFiles::no, SharedFiles::yes),
                                          testing::Values(CodeactOutputs::none,
                                                          CodeactOutputs::declared,
                                                          CodeactOutputs::manifest)));

TEST(CodeactDescription, AnEmptyRegistryReadsLikeNone) {
  const HostToolRegistry empty;
  const SandboxSpec spec = codeact_sandbox_spec();
  EXPECT_EQ(tool_description(spec, SharedFiles::no, CodeactOutputs::none, &empty),
            tool_description(spec, SharedFiles::no, CodeactOutputs::none));
}

TEST(CodeactDescription, SaysOnceWhereOneCallIsAllowedAndKeepsAToolOnItsLine) {
  HostToolRegistry registry({.max_host_tool_calls_per_run = 1});
  HostTool tool;
  tool.name = "a\nb";
  tool.description = "One.\r\nTwo.";
  tool.parameters = R"({"type": "object"})";
  tool.function = [](const auto&, const auto&) { return boost::json::value(1); };
  registry.register_tool(tool);
  const std::string text =
      tool_description(codeact_sandbox_spec(), SharedFiles::no, CodeactOutputs::none, &registry);
  EXPECT_NE(text.find("itself calls, once at most in one run."), std::string::npos) << text;
  EXPECT_NE(text.find("\n  \"a\\nb\": One.  Two. Arguments: {\"type\":\"object\"}\n"),
            std::string::npos)
      << text;
}

TEST(CodeactDescription, SpeaksOfHostsAndHostToolsTogether) {
  SandboxSpec spec = codeact_sandbox_spec();
  spec.egress = Egress::allowlist;
  spec.egress_allow = {HostPattern::parse("pypi.org")};
  const auto registry = two_tools();
  EXPECT_NE(tool_description(spec, SharedFiles::no, CodeactOutputs::none, registry.get())
                .find("these hosts and no others: pypi.org. Beside that it can call the host tools "
                      "below."),
            std::string::npos);
}

TEST(CodeactDescription, NamesTheHostsThatTheSpecAllows) {
  SandboxSpec spec = codeact_sandbox_spec();
  spec.egress = Egress::allowlist;
  const auto text = [&] { return tool_description(spec, SharedFiles::no, CodeactOutputs::none); };
  EXPECT_NE(text().find("It has no network."), std::string::npos);
  spec.egress_allow = {HostPattern::parse("pypi.org"), HostPattern::parse("*.example.org:8443")};
  EXPECT_NE(text().find("these hosts and no others: pypi.org, *.example.org:8443."),
            std::string::npos);
  spec.egress = Egress::unrestricted;
  EXPECT_NE(text().find("It can use the network."), std::string::npos);
}

TEST(CodeactDescription, SaysTheCapsInForce) {
  CodeactSpecOptions options;
  options.outputs = CodeactOutputs::manifest;
  options.files_out = {100, 3 * kMiB, 2};
  EXPECT_NE(tool_description(codeact_sandbox_spec(options), SharedFiles::no, options.outputs)
                .find("At most 1 file, 100 bytes each and 3 MiB in all."),
            std::string::npos);
}

TEST(CodeactDescription, HasASchemaThatIsHeld) {
  const ToolParameters parameters =
      ToolParameters::parse(tool_parameters(SharedFiles::yes, CodeactOutputs::declared));
  EXPECT_NO_THROW(parameters.check(R"({"code":"","files":["a"],"outputs":["b"]})"));
}

}  // namespace
}  // namespace casemate::codeact
