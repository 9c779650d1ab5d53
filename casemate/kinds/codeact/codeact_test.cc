#include "casemate/kinds/codeact/codeact.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <thread>

#include "casemate/base/json.h"
#include "casemate/kinds/codeact/scripted_test.h"
#include "tests/support/expect_refusal.h"

// clang-tidy 19 takes variables for unchanged here that are assigned to on the next line.
// NOLINTBEGIN(misc-const-correctness)
namespace casemate::codeact {
namespace {

CallerContext context() {
  return {[] { return std::string("tenant"); }, [] { return std::string("thread"); }};
}

std::vector<Tool> make(const Scripted& scripted, CodeactToolOptions options = {}) {
  return make_codeact_tools(scripted.router, "agent", context(), std::move(options));
}

CodeactToolOptions with_outputs(const Scripted& scripted, CodeactOutputs outputs) {
  CodeactToolOptions options;
  options.outputs = outputs;
  options.output_sink = scripted.sink;
  return options;
}

// -- Spec ----------------------------------------------------------------------------------------

TEST(CodeactSpec, AsksForNoMoreThanItNeeds) {
  const SandboxSpec spec = codeact_sandbox_spec();
  EXPECT_EQ(spec.kind, "codeact");
  EXPECT_EQ(spec.work_dir, "/workspace");
  EXPECT_EQ(spec.requires_capabilities, (CapabilitySet{Capability::exec, Capability::files_in}));
  EXPECT_EQ(spec.egress, Egress::closed);
  EXPECT_FALSE(spec.outputs_named_at_call_time);
  EXPECT_FALSE(spec.min_isolation);
  EXPECT_FALSE(spec.requires_os_family);
  EXPECT_EQ(spec.files_in, kDefaultTransferLimits);
  EXPECT_EQ(spec.files_out, (TransferLimits{8 * kMiB, 32 * kMiB, 8}));
}

TEST(CodeactSpec, ReachesTheHostsThatAreListedEachOnce) {
  CodeactSpecOptions options;
  const HostPattern one = HostPattern::parse("pypi.org");
  const HostPattern other = HostPattern::parse("*.example.org:8443");
  options.egress_allow = {one, other, HostPattern::parse("PyPI.org.")};
  const SandboxSpec spec = codeact_sandbox_spec(options);
  EXPECT_EQ(spec.egress, Egress::allowlist);
  EXPECT_EQ(spec.egress_allow, (std::vector<HostPattern>{one, other}));
}

TEST(CodeactSpec, AsksForFilesOutWithAnyModeOfOutputs) {
  for (const CodeactOutputs outputs : {CodeactOutputs::declared, CodeactOutputs::manifest}) {
    CodeactSpecOptions options;
    options.outputs = outputs;
    const SandboxSpec spec = codeact_sandbox_spec(options);
    EXPECT_TRUE(spec.outputs_named_at_call_time);
    EXPECT_EQ(spec.requires_capabilities,
              (CapabilitySet{Capability::exec, Capability::files_in, Capability::files_out}));
  }
}

TEST(CodeactSpec, CarriesWhatTheHostStates) {
  CodeactSpecOptions options;
  options.image = "host";
  options.image_id = "id";
  options.resources.memory_bytes = stated(64 * kMiB);
  options.labels = {{"a", "b"}};
  options.files_in = {1, 2, 3};
  const SandboxSpec spec = codeact_sandbox_spec(options);
  EXPECT_EQ(spec.image, "host");
  EXPECT_EQ(spec.image_id, "id");
  EXPECT_EQ(spec.resources, options.resources);
  EXPECT_EQ(spec.labels, options.labels);
  EXPECT_EQ(spec.files_in, options.files_in);
}

TEST(CodeactOutputsMode, HasWireSpellings) {
  for (const char* text : {"none", "declared", "manifest"}) {
    EXPECT_EQ(to_string(parse_codeact_outputs(text)), text);
  }
  expect_refusal<InvalidArgument>([] { parse_codeact_outputs("Declared"); },
                                  {"'Declared'", "none, declared, manifest"});
}

// -- Construction --------------------------------------------------------------------------------

TEST(CodeactTools, AreNoneWhereNothingIsConfigured) {
  CodeactToolOptions options;
  options.exec_timeout = std::chrono::seconds(0);
  options.files_in.max_files = 0;
  EXPECT_TRUE(make_codeact_tools(SandboxRouter({}), "agent", context(), options).empty());
}

TEST(CodeactTools, AreOneFunction) {
  Scripted scripted;
  const auto tools = make(scripted);
  ASSERT_EQ(tools.size(), 1U);
  EXPECT_EQ(tools[0].name(), "execute_code");
  EXPECT_EQ(tools[0].approval_mode(), ApprovalMode::never_require);
  EXPECT_TRUE(tools[0].declarations().empty());
}

void expect_refused(const Scripted& scripted, const CodeactToolOptions& options,
                    std::string_view part) {
  expect_refusal<InvalidArgument>([&] { make(scripted, options); }, part);
}

TEST(CodeactTools, RefuseATimeoutThatIsNone) {
  Scripted scripted;
  CodeactToolOptions options;
  options.exec_timeout = std::chrono::seconds(0);
  expect_refused(scripted, options, "timeout");
  options.exec_timeout = std::chrono::hours(24 * 7) + std::chrono::nanoseconds(1);
  expect_refused(scripted, options, "timeout");
  options.exec_timeout = std::chrono::hours(24 * 7);
  EXPECT_EQ(make(scripted, options).size(), 1U);
}

TEST(CodeactTools, RefuseCapsUnderWhichNothingCouldPass) {
  Scripted scripted;
  CodeactToolOptions options;
  options.files_in.max_files = 0;
  expect_refused(scripted, options, "files_in.max_files");
  options.files_in.max_files = 1;
  EXPECT_EQ(make(scripted, options).size(), 1U);

  options = with_outputs(scripted, CodeactOutputs::declared);
  options.files_out.max_files = 0;
  expect_refused(scripted, options, "files_out.max_files");
  options.files_out.max_files = 1;
  EXPECT_EQ(make(scripted, options).size(), 1U);

  options = with_outputs(scripted, CodeactOutputs::manifest);
  options.files_out.max_files = 1;
  expect_refused(scripted, options, "files_out.max_files");
  options.files_out = {26, 26, 2};
  EXPECT_EQ(make(scripted, options).size(), 1U);
  options.files_out = {25, 26, 2};
  expect_refused(scripted, options, "26");
  options.files_out = {26, 25, 2};
  expect_refused(scripted, options, "26");
}

TEST(CodeactTools, RefuseASinkThatNothingWouldReachAndAMissingOne) {
  Scripted scripted;
  CodeactToolOptions options = with_outputs(scripted, CodeactOutputs::none);
  expect_refused(scripted, options, "sink");
  options = with_outputs(scripted, CodeactOutputs::declared);
  options.output_sink = nullptr;
  expect_refusal<SandboxOutputSinkRequired>([&] { make(scripted, options); });
}

TEST(CodeactTools, RefuseInTheContractsOrder) {
  Scripted scripted;
  CodeactToolOptions options;
  options.exec_timeout = std::chrono::seconds(0);
  options.files_in.max_files = 0;
  options.outputs = CodeactOutputs::manifest;
  options.files_out = {1, 1, 1};
  options.resources.pids = stated(1);
  expect_refused(scripted, options, "timeout");
  options.exec_timeout = std::chrono::seconds(1);
  expect_refused(scripted, options, "files_in.max_files");
  options.files_in.max_files = 1;
  expect_refused(scripted, options, "files_out.max_files");
  options.files_out.max_files = 2;
  expect_refused(scripted, options, "26");
  options.files_out = kDefaultCodeactFilesOut;
  expect_refusal<SandboxOutputSinkRequired>([&] { make(scripted, options); });
  options.output_sink = scripted.sink;
  expect_refused(scripted, options, "pids");
}

TEST(CodeactTools, RefuseAStoreThatReadsWhatTheSinkLands) {
  char pattern[] = "/tmp/casemate-codeact-test-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::filesystem::path root = pattern;
  std::filesystem::create_directory(root / "out");
  Scripted scripted;
  CodeactToolOptions options = with_outputs(scripted, CodeactOutputs::declared);
  options.file_store = std::make_shared<DirectoryFileStore>(root);
  options.output_sink = make_file_system_sink(root / "out");
  expect_refused(scripted, options, "");
  options.unsafe_shared_store = UnsafeSharedStore();
  EXPECT_EQ(make(scripted, options).size(), 1U);
  // The road that every front end takes asks the same, before anything is touched.
  scripted.wiring.file_store = options.file_store;
  scripted.wiring.output_sink = options.output_sink;
  CodeactRequest request;
  request.code = "pass";
  expect_refusal<InvalidArgument>([&] { scripted.run(request); });
  EXPECT_TRUE(scripted.untouched());
  scripted.wiring.unsafe_shared_store = UnsafeSharedStore();
  scripted.run(request);
  EXPECT_FALSE(scripted.untouched());
  std::filesystem::remove_all(root);
}

TEST(CodeactTools, ObeyTheRouter) {
  Scripted scripted;
  const SandboxRouter strict({scripted.backend}, {.min_isolation = Isolation::process,
                                                  .denied_capabilities = {Capability::files_out}});
  EXPECT_EQ(make_codeact_tools(strict, "agent", context()).size(), 1U);
  expect_refusal<SandboxCapabilityDenied>([&] {
    make_codeact_tools(strict, "agent", context(),
                       with_outputs(scripted, CodeactOutputs::declared));
  });
}

TEST(CodeactTools, CapConfidentialityWhereOutputsLand) {
  Scripted scripted;
  CodeactToolOptions options;
  options.outbound_max_confidentiality = "internal";
  EXPECT_TRUE(make(scripted, options).at(0).declarations().empty());
  options = with_outputs(scripted, CodeactOutputs::declared);
  options.outbound_max_confidentiality = "internal";
  EXPECT_EQ(make(scripted, options).at(0).declarations(),
            (ToolDeclarations{{"max_allowed_confidentiality", "internal"}}));
}

TEST(CodeactTools, ShowParametersByTheWiring) {
  Scripted scripted;
  const auto names = [&](const CodeactToolOptions& options) {
    std::string all;
    const auto schema = parse_json(make(scripted, options).at(0).parameters()).as_object();
    for (const auto& each : schema.at("properties").as_object()) {
      all += std::string(each.key()) + " ";
    }
    return all;
  };
  EXPECT_EQ(names({}), "code ");
  EXPECT_EQ(names(with_outputs(scripted, CodeactOutputs::manifest)), "code ");
  CodeactToolOptions options = with_outputs(scripted, CodeactOutputs::declared);
  EXPECT_EQ(names(options), "code outputs ");
  options.file_store = std::make_shared<InMemoryStore>(std::map<std::string, std::string>());
  EXPECT_EQ(names(options), "code files outputs ");
}

// -- Invocation ----------------------------------------------------------------------------------

TEST(ExecuteCode, RunsAProgramAndSaysWhatCameOfIt) {
  Scripted scripted([](const Program& program) {
    program.write("out.txt", program.source() + program.read("in.txt").value_or("?"));
    return exited(0, "done\n");
  });
  CodeactToolOptions options = with_outputs(scripted, CodeactOutputs::declared);
  options.file_store =
      std::make_shared<InMemoryStore>(std::map<std::string, std::string>{{"in.txt", "input"}});
  options.exec_timeout = std::chrono::seconds(7);
  const ToolResult result =
      make(scripted, options)
          .at(0)
          .invoke(R"({"code":"x","files":["in.txt"],"outputs":["out.txt"]})", {});
  EXPECT_EQ(result.text, "stdout:\ndone\n\nSaved:\n- out.txt (6 bytes)");
  EXPECT_FALSE(result.is_error);
  ASSERT_EQ(result.artifacts.size(), 1U);
  EXPECT_EQ(result.artifacts[0].handle, "/host/out/out.txt");
  EXPECT_EQ(scripted.sink->landed.at("out.txt"), "xinput");
  const auto structured = parse_json(result.structured).as_object();
  EXPECT_EQ(structured.at("status"), "exited");
  EXPECT_EQ(result.structured.find("/host"), std::string::npos);
  EXPECT_EQ(scripted.backend->keys().at(0), (SandboxKey{"tenant", "thread", "agent"}));
  EXPECT_EQ(scripted.sandbox->commands().at(0).timeout, std::chrono::seconds(7));
}

// EX-07
TEST(ExecuteCode, SaysWhatAProgramPrintedBeforeItsSandboxWasLost) {
  Scripted scripted([](const Program&) -> ExecResult {
    throw Carrying<SandboxUnavailable, ReceivedOutput>(SandboxUnavailable("/run/x.sock: gone", "h"),
                                                       {{"pre\n"}, {}});
  });
  CodeactToolOptions options;
  options.log = scripted.wiring.owner.log;
  const ToolResult result = make(scripted, options).at(0).invoke(R"({"code":"x"})", {});
  EXPECT_TRUE(result.is_error);
  EXPECT_TRUE(result.text.starts_with("Error: the sandbox is not available")) << result.text;
  EXPECT_NE(result.text.find("\n\nstdout:\npre\n\nnote: "), std::string::npos) << result.text;
  const auto structured = parse_json(result.structured).as_object();
  EXPECT_EQ(structured.at("status"), "failed");
  EXPECT_EQ(structured.at("stdout"), "pre\n");
  EXPECT_EQ(structured.at("error").at("code"), "SandboxUnavailable");
  EXPECT_EQ((result.text + result.structured).find("/run"), std::string::npos);
  EXPECT_NE(scripted.log.find("execute_code: SandboxUnavailable: /run/x.sock: gone (h)"),
            std::string::npos)
      << scripted.log;
}

TEST(ExecuteCode, PassesTheCallersListenersAndBoundsOn) {
  std::stop_source source;
  Scripted scripted([&](const Program& program) {
    EXPECT_EQ(program.execution().control.stop, source.get_token());
    return exited(0, std::string(1000, 'x'));
  });
  CodeactToolOptions options;
  options.capture_bytes = 100;
  std::string seen;
  std::vector<std::string> steps;
  ToolCall call;
  call.control.stop = source.get_token();
  call.on_output = [&](OutputStream, std::span<const char> bytes) {
    seen.append(bytes.begin(), bytes.end());
  };
  call.progress = [&](std::string_view step) { steps.emplace_back(step); };
  const ToolResult result = make(scripted, options).at(0).invoke(R"({"code":"x"})", call);
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_EQ(steps.size(), 2U);
  EXPECT_NE(result.text.find("[... 900 bytes missing ...]"), std::string::npos);
}

TEST(ExecuteCode, IsNoErrorWhenTheProgramFails) {
  Scripted scripted([](const Program&) { return exited(1, "", "boom\n"); });
  const ToolResult result = make(scripted).at(0).invoke(R"({"code":"x"})", {});
  EXPECT_FALSE(result.is_error);
  EXPECT_EQ(result.text, "stderr:\nboom\n\nexit code: 1");
}

TEST(ExecuteCode, IsAnErrorWhenNoProgramRan) {
  Scripted scripted;
  CodeactToolOptions options;
  options.file_store =
      std::make_shared<InMemoryStore>(std::map<std::string, std::string>{{"a.csv", ""}});
  const Tool tool = make(scripted, options).at(0);
  const auto text_of = [&](std::string_view arguments) {
    const ToolResult result = tool.invoke(arguments, {});
    EXPECT_TRUE(result.is_error);
    return result.text;
  };
  EXPECT_EQ(text_of(R"({"code":"x","files":["b.csv"]})"),
            "Error: there is no shared file 'b.csv'; there are: a.csv.");
  EXPECT_EQ(text_of(R"({"code":"x","timeout":5})"),
            "Error: there is no parameter 'timeout'; there is code, files.");
  EXPECT_EQ(text_of(R"({"code":"x","files":["../../etc/shadow"]})").find("shadow"),
            std::string::npos);
  EXPECT_TRUE(scripted.untouched());
}

TEST(ExecuteCode, ListsNoSharedFileForANameThatTraverses) {
  Scripted scripted;
  CodeactToolOptions options;
  options.file_store =
      std::make_shared<InMemoryStore>(std::map<std::string, std::string>{{"a.csv", ""}});
  const std::string text =
      make(scripted, options).at(0).invoke(R"({"code":"x","files":["../a.csv"]})", {}).text;
  EXPECT_EQ(text.find("a.csv"), std::string::npos) << text;
}

// By every road a name can take, the result repeats no name that traverses.
TEST(ExecuteCode, RepeatsNoNameThatTraversesAnywhereInItsResult) {
  for (const std::string name :
       {"../canary", "../../canary", "a/../../canary", "/canary", "/etc/canary", "canary/.."}) {
    const std::string quoted = boost::json::serialize(boost::json::string(name));
    const auto result_of = [&](CodeactOutputs outputs, const std::string& arguments) {
      Scripted scripted([&](const Program& program) {
        program.write("outputs.json", R"({"outputs":[{"path":)" + quoted + "}]}");
        return exited(0, "done\n");
      });
      CodeactToolOptions options;
      if (outputs != CodeactOutputs::none) options = with_outputs(scripted, outputs);
      options.file_store =
          std::make_shared<InMemoryStore>(std::map<std::string, std::string>{{"a.csv", ""}});
      const ToolResult result = make(scripted, options).at(0).invoke(arguments, {});
      return result.text + "\n" + result.structured;
    };
    for (const std::string& said :
         {result_of(CodeactOutputs::none, R"({"code":"x","files":[)" + quoted + "]}"),
          result_of(CodeactOutputs::declared, R"({"code":"x","outputs":[)" + quoted + "]}"),
          result_of(CodeactOutputs::manifest, R"({"code":"x"})")}) {
      EXPECT_EQ(said.find("canary"), std::string::npos) << said;
      EXPECT_NE(said.find("Error: "), std::string::npos) << said;
    }
  }
}

TEST(ExecuteCode, RunsConcurrentCallsInDirectoriesOfTheirOwn) {
  // LC-14
  Scripted scripted([](const Program& program) {
    const std::string mine = program.execution().call_id;
    program.write("out.txt", mine);
    return exited(0, mine + " " + program.read("out.txt").value_or("?"));
  });
  const Tool tool = make(scripted).at(0);
  std::vector<std::jthread> threads;
  threads.reserve(8);
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&] {
      for (int call = 0; call < 20; ++call) {
        const std::string text = tool.invoke(R"({"code":"x"})", {}).text;
        const std::string id = text.substr(text.find('\n') + 1, 12);
        EXPECT_EQ(text, fmt::format("stdout:\n{0} {0}", id));
      }
    });
  }
}

}  // namespace
}  // namespace casemate::codeact
// NOLINTEND(misc-const-correctness)
