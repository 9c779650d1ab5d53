#include "casemate/tool/sandboxed_tool.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <stdexcept>
#include <string>

#include "casemate/tool/refusals.h"
#include "casemate/tool/wired_test.h"
#include "casemate/transfer/sink.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

constexpr std::string_view kSchema =
    R"({"type":"object","properties":{"text":{"type":"string"}},"additionalProperties":false})";

class NowhereSink final : public OutputSink {
 public:
  LandedArtifact deliver(const Artifact& artifact) override {
    return {.name = artifact.name, .display = artifact.name, .handle = {}, .bytes = 0};
  }
};

SandboxedToolParts parts_with(
    std::function<ToolResult(const boost::json::object&, const ToolCall&, SandboxToolSession&)>
        body) {
  return {.description = "Does it.", .parameters = std::string(kSchema), .body = std::move(body)};
}

SandboxedToolBuilder building(
    std::function<ToolResult(const boost::json::object&, const ToolCall&, SandboxToolSession&)>
        body) {
  return [body = std::move(body)](const SandboxSpec&) { return parts_with(body); };
}

SandboxedToolBuilder building_nothing() {
  return [](const SandboxSpec&) {
    ADD_FAILURE() << "was built";
    return SandboxedToolParts{};
  };
}

SandboxedToolOptions options_for(const Wired& wired) {
  SandboxedToolOptions options;
  options.router = wired.router;
  options.context = fixed_context();
  options.agent_dir = "agent";
  options.spec.kind = "test";
  options.name = "do_it";
  return options;
}

// A spec that lands outputs.
SandboxedToolOptions landing_options(const Wired& wired) {
  SandboxedToolOptions options = options_for(wired);
  options.spec.outputs_named_at_call_time = true;
  options.spec.requires_capabilities.insert(Capability::files_out);
  options.output_sink = std::make_shared<NowhereSink>();
  return options;
}

// -- Construction --------------------------------------------------------------------------------

TEST(SandboxedTool, IsNoToolWhereNoSandboxIsConfigured) {
  SandboxedToolOptions options = options_for(Wired());
  options.router = SandboxRouter({});
  EXPECT_TRUE(sandboxed_tool(building_nothing(), options).empty());
  options.router = std::nullopt;
  EXPECT_TRUE(sandboxed_tool(building_nothing(), options).empty());
}

TEST(SandboxedTool, RefusesNothingWhereNoSandboxIsConfigured) {
  SandboxedToolOptions options = landing_options(Wired());
  options.router = SandboxRouter({});
  options.output_sink = nullptr;
  EXPECT_TRUE(sandboxed_tool(building_nothing(), options).empty());
}

TEST(SandboxedTool, RefusesASinkBesideExplicitDeclarations) {
  const Wired wired;
  SandboxedToolOptions options = landing_options(wired);
  options.declarations = ToolDeclarations{};
  expect_refusal<InvalidArgument>([&] { sandboxed_tool(building_nothing(), options); },
                                  {"do_it", "explicit declarations"});
}

TEST(SandboxedTool, RefusesASpecThatLandsWithoutASink) {
  const Wired wired;
  SandboxedToolOptions options = landing_options(wired);
  options.output_sink = nullptr;
  expect_refusal<SandboxOutputSinkRequired>([&] { sandboxed_tool(building_nothing(), options); },
                                            "test");
}

TEST(SandboxedTool, RefusesOutputsWithoutTheCapabilityToFetchThem) {
  const Wired wired;
  SandboxedToolOptions options = landing_options(wired);
  options.spec.requires_capabilities.erase(Capability::files_out);
  expect_refusal<InvalidArgument>([&] { sandboxed_tool(building_nothing(), options); },
                                  "files_out");

  // Consumed outputs have to be fetched for their size too.
  options = options_for(wired);
  options.spec.declared_outputs = {
      {.path = "a", .disposition = OutputDisposition::consume, .media_type = {}, .name = {}}};
  expect_refusal<InvalidArgument>([&] { sandboxed_tool(building_nothing(), options); },
                                  "files_out");
}

TEST(SandboxedTool, AsksTheRouterBeforeItIsBuilt) {
  const Wired wired;
  SandboxedToolOptions options = options_for(wired);
  options.spec.requires_capabilities.insert(Capability::snapshot);
  expect_refusal<SandboxCapabilityNotSupported>(
      [&] { sandboxed_tool(building_nothing(), options); }, "snapshot");
}

TEST(SandboxedTool, RefusesInTheContractsOrder) {
  const Wired wired;
  SandboxedToolOptions options = landing_options(wired);
  options.declarations = ToolDeclarations{};
  options.spec.requires_capabilities = {Capability::snapshot};
  expect_refusal<InvalidArgument>([&] { sandboxed_tool(building_nothing(), options); },
                                  "declarations");
  options.output_sink = nullptr;
  expect_refusal<SandboxOutputSinkRequired>([&] { sandboxed_tool(building_nothing(), options); });
  options.output_sink = std::make_shared<NowhereSink>();
  options.declarations.reset();
  expect_refusal<InvalidArgument>([&] { sandboxed_tool(building_nothing(), options); },
                                  "files_out");
  options.spec.requires_capabilities.insert(Capability::files_out);
  expect_refusal<SandboxCapabilityNotSupported>(
      [&] { sandboxed_tool(building_nothing(), options); });
}

TEST(SandboxedTool, RefusesARootAsWorkDirectory) {
  const Wired wired;
  SandboxedToolOptions options = options_for(wired);
  options.spec.work_dir = "//";
  expect_refusal<InvalidArgument>([&] { sandboxed_tool(building({}), options); });
}

TEST(SandboxedTool, RefusesASchemaThatItCannotHold) {
  Wired wired;
  expect_refusal<InvalidArgument>(
      [&] {
        sandboxed_tool(
            [](const SandboxSpec&) {
              return SandboxedToolParts{.description = {}, .parameters = "{}", .body = {}};
            },
            options_for(wired));
      },
      "schema");
}

TEST(SandboxedTool, LetsPassWhatItsBuilderThrows) {
  const Wired wired;
  EXPECT_THROW(
      sandboxed_tool(
          [](const SandboxSpec&) -> SandboxedToolParts { throw std::logic_error("broken"); },
          options_for(wired)),
      std::logic_error);
}

TEST(SandboxedTool, SaysWhatItIs) {
  const Wired wired;
  SandboxedToolOptions options = options_for(wired);
  options.approval_mode = ApprovalMode::always_require;
  const Tool tool = sandboxed_tool(building({}), options).at(0);
  EXPECT_EQ(tool.name(), "do_it");
  EXPECT_EQ(tool.description(), "Does it.");
  EXPECT_EQ(tool.parameters(), kSchema);
  EXPECT_EQ(tool.approval_mode(), ApprovalMode::always_require);
  EXPECT_EQ(to_string(tool.approval_mode()), "always_require");
  EXPECT_EQ(to_string(ApprovalMode::never_require), "never_require");
  EXPECT_EQ(tool.declarations(), (ToolDeclarations{{"source_integrity", "trusted"}}));
}

TEST(SandboxedTool, TakesExplicitDeclarationsAsTheyAre) {
  const Wired wired;
  SandboxedToolOptions options = options_for(wired);
  options.declarations = ToolDeclarations{{"source_integrity", "untrusted"}};
  options.outbound_max_confidentiality = "internal";
  options.spec.egress = Egress::allowlist;
  EXPECT_EQ(sandboxed_tool(building({}), options).at(0).declarations(), *options.declarations);
}

// -- Declarations --------------------------------------------------------------------------------

TEST(ToolDeclarations, CapConfidentialityOnlyWhereSomethingCanLeave) {
  const auto cap = [](const SandboxSpec& spec, const OutputSink* sink = nullptr,
                      AlsoCarriesOut also = AlsoCarriesOut::no) {
    return sandbox_tool_declarations(spec, std::nullopt, "internal", sink, also)
        .contains("max_allowed_confidentiality");
  };
  const NowhereSink sink;
  SandboxSpec spec;
  EXPECT_FALSE(cap(spec));
  EXPECT_FALSE(cap(spec, &sink));
  EXPECT_TRUE(cap(spec, nullptr, AlsoCarriesOut::yes));
  spec.outputs_named_at_call_time = true;
  EXPECT_FALSE(cap(spec));
  EXPECT_TRUE(cap(spec, &sink));
  spec = {};
  spec.egress = Egress::allowlist;
  EXPECT_FALSE(cap(spec));
  spec.egress_allow = {HostPattern::parse("example.org")};
  EXPECT_TRUE(cap(spec));
  spec = {};
  spec.egress = Egress::unrestricted;
  EXPECT_TRUE(cap(spec));
}

TEST(ToolDeclarations, SayOnlyWhatWasStated) {
  EXPECT_EQ(sandbox_tool_declarations({}), (ToolDeclarations{{"source_integrity", "trusted"}}));
  EXPECT_TRUE(sandbox_tool_declarations({}, std::nullopt).empty());
  SandboxSpec spec;
  spec.egress = Egress::unrestricted;
  EXPECT_EQ(sandbox_tool_declarations(spec, SourceIntegrity::untrusted, "secret"),
            (ToolDeclarations{{"source_integrity", "untrusted"},
                              {"max_allowed_confidentiality", "secret"}}));
  EXPECT_TRUE(sandbox_tool_declarations(spec, std::nullopt).empty());
}

// -- Invocation ----------------------------------------------------------------------------------

// One invocation of a tool with this body.
ToolResult invoke_with(
    const SandboxedToolOptions& options,
    std::function<ToolResult(const boost::json::object&, const ToolCall&, SandboxToolSession&)>
        body,
    std::string_view arguments = "{}", const ToolCall& call = {}) {
  return sandboxed_tool(building(std::move(body)), options).at(0).invoke(arguments, call);
}

ToolResult said(std::string text) {
  ToolResult result;
  result.text = std::move(text);
  return result;
}

TEST(Tool, GivesItsBodyArgumentsThatFitAndItsResultBack) {
  const Wired wired;
  const ToolResult result = invoke_with(
      options_for(wired),
      [](const boost::json::object& arguments, const ToolCall&, SandboxToolSession&) {
        return said(std::string(arguments.at("text").get_string()) + "!");
      },
      R"({"text":"hello"})");
  EXPECT_EQ(result.text, "hello!");
  EXPECT_FALSE(result.is_error);
}

TEST(Tool, StartsNothingForArgumentsThatDoNotFit) {
  const Wired wired;
  for (const char* arguments : {"{\"text\":7}", "{\"thread_id\":\"other\"}", "nonsense"}) {
    const ToolResult result = invoke_with(
        options_for(wired),
        [](const auto&, const auto&, SandboxToolSession&) -> ToolResult {
          ADD_FAILURE() << "ran";
          return {};
        },
        arguments);
    EXPECT_TRUE(result.is_error);
    EXPECT_TRUE(result.text.starts_with("Error: ")) << result.text;
  }
  EXPECT_TRUE(wired.backend->keys().empty());
}

TEST(Tool, TurnsEveryRefusalIntoASentenceAndLogsTheDetail) {
  const Wired wired;
  LogLines lines;
  SandboxedToolOptions options = options_for(wired);
  options.log = lines.log();
  const ToolResult result =
      invoke_with(options, [](const auto&, const auto&, SandboxToolSession&) -> ToolResult {
        throw SandboxUnavailable("engine at /run/secret.sock said no", "start the engine");
      });
  EXPECT_TRUE(result.is_error);
  EXPECT_EQ(result.text, sentence_for_model(SandboxUnavailable("")));
  EXPECT_EQ(result.structured.find("Error: "), std::string::npos);
  EXPECT_EQ(result.structured,
            R"({"status":"failed","error":{"code":"SandboxUnavailable","message":")" +
                std::string(without_error_prefix(result.text)) + R"(","hint":""}})");
  EXPECT_EQ(lines.text(),
            "warning: do_it: SandboxUnavailable: engine at /run/secret.sock said no "
            "(start the engine)\n");
}

TEST(Tool, TurnsWhatIsNoExceptionAtAllIntoAnUnavailableSandbox) {
  const Wired wired;
  const ToolResult result =
      invoke_with(options_for(wired),
                  [](const auto&, const auto&, SandboxToolSession&) -> ToolResult { throw 42; });
  EXPECT_TRUE(result.is_error);
  EXPECT_EQ(result.text, sentence_for_model(SandboxUnavailable("")));
  SandboxedToolOptions options = options_for(wired);
  options.context.current_scope = []() -> std::string { throw 42; };
  const ToolResult keyless =
      invoke_with(options, [](const auto&, const auto&, SandboxToolSession& session) -> ToolResult {
        session.key();
        return {};
      });
  EXPECT_TRUE(keyless.is_error);
}

TEST(Tool, TurnsAnExceptionThatIsNoRefusalIntoAnUnavailableSandbox) {
  const Wired wired;
  const ToolResult result = invoke_with(
      options_for(wired), [](const auto&, const auto&, SandboxToolSession&) -> ToolResult {
        throw std::runtime_error("/etc/shadow");
      });
  EXPECT_TRUE(result.is_error);
  EXPECT_EQ(result.text, sentence_for_model(SandboxUnavailable("")));
}

TEST(Tool, LetsPassWhatAListenerThrew) {
  const Wired wired;
  struct ListenerBroke {};
  ToolCall call;
  call.on_output = [](OutputStream, std::span<const char>) { throw std::logic_error("mine"); };
  call.progress = [](std::string_view) { throw ListenerBroke(); };
  EXPECT_THROW(invoke_with(
                   options_for(wired),
                   [](const auto&, const ToolCall& watched, SandboxToolSession&) -> ToolResult {
                     watched.on_output(OutputStream::out, {});
                     return {};
                   },
                   "{}", call),
               std::logic_error);
  EXPECT_THROW(invoke_with(
                   options_for(wired),
                   [](const auto&, const ToolCall& watched, SandboxToolSession&) -> ToolResult {
                     watched.progress("step");
                     return {};
                   },
                   "{}", call),
               ListenerBroke);
  // Also where something between made another exception of it.
  EXPECT_THROW(invoke_with(
                   options_for(wired),
                   [](const auto&, const ToolCall& watched, SandboxToolSession&) -> ToolResult {
                     try {
                       watched.on_output(OutputStream::out, {});
                     } catch (const std::exception&) {
                       throw SandboxUnavailable("the run ended");
                     }
                     return {};
                   },
                   "{}", call),
               std::logic_error);
}

TEST(Tool, GivesNoListenerWhereTheCallerHasNone) {
  const Wired wired;
  invoke_with(options_for(wired), [](const auto&, const ToolCall& call, SandboxToolSession&) {
    EXPECT_FALSE(call.on_output);
    EXPECT_FALSE(call.progress);
    return said("");
  });
}

// -- Session -------------------------------------------------------------------------------------

TEST(SandboxToolSession, ReadsTheKeyAnewAtEachInvocation) {
  const Wired wired;
  SandboxedToolOptions options = options_for(wired);
  int invocation = 0;
  options.context.current_scope = [&] { return "scope-" + std::to_string(invocation); };
  options.context.current_thread_id = [&] { return "thread-" + std::to_string(invocation); };
  const Tool tool =
      sandboxed_tool(building([](const auto&, const ToolCall& call, SandboxToolSession& session) {
                       session.acquire(session.key(), call.control);
                       return said("");
                     }),
                     options)
          .at(0);
  for (invocation = 1; invocation <= 2; ++invocation) tool.invoke("{}", {});
  EXPECT_EQ(wired.backend->keys(), (std::vector<SandboxKey>{{"scope-1", "thread-1", "agent"},
                                                            {"scope-2", "thread-2", "agent"}}));
}

TEST(SandboxToolSession, RefusesToRunOutsideAConversationAndNamesTheTool) {
  const Wired wired;
  SandboxedToolOptions options = options_for(wired);
  options.context.current_thread_id = [] { return std::nullopt; };
  options.context.current_scope = []() -> std::string {
    ADD_FAILURE() << "was asked for";
    return "";
  };
  const ToolResult result =
      invoke_with(options, [](const auto&, const auto&, SandboxToolSession& session) {
        session.key();
        return said("");
      });
  EXPECT_TRUE(result.is_error);
  EXPECT_EQ(result.text, "Error: do_it needs a conversation to run in, and there is none.");
}

TEST(SandboxToolSession, OpensCallsThatEndWithTheInvocation) {
  const Wired wired({.close_is_known = false});
  std::vector<ReclaimFailure> failures;
  SandboxedToolOptions options = options_for(wired);
  options.on_reclaim_failure = [&](const ReclaimFailure& failure) { failures.push_back(failure); };
  invoke_with(options, [](const auto&, const ToolCall& call, SandboxToolSession& session) {
    EXPECT_EQ(session.spec().kind, "test");
    const GuestCall open = session.open_call(session.key(), call.control);
    return said("");
  });
  EXPECT_TRUE(wired.sandbox->calls().at(0).closed);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures.front().tool, "do_it");
}

}  // namespace
}  // namespace casemate
