// Host tools as the kind wires them, on the fake: a function acts as the program and calls as one.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/tools_test.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/kinds/codeact/run_json.h"
#include "casemate/kinds/codeact/scripted_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::codeact {
namespace {

HostTool declared(HostTool tool, HostToolDeclaration declaration) {
  tool.declaration = std::move(declaration);
  return tool;
}

HostTool named(std::string name) {
  HostTool tool = echo();
  tool.name = std::move(name);
  return tool;
}

const HostToolDeclaration kPure{
    .source = std::nullopt, .sink = std::nullopt, .identity = std::nullopt};
const HostToolDeclaration kCarriesOut{
    .source = SourceIntegrity::trusted, .sink = "internal", .identity = Identity::app};
const HostToolDeclaration kActsAsUser{
    .source = std::nullopt, .sink = std::nullopt, .identity = Identity::user};

BackendDeclarations carrying(HostToolTransport transport) {
  BackendDeclarations declarations = able_declarations();
  declarations.capabilities.insert(Capability::host_tools);
  declarations.host_tool_transport = transport;
  return declarations;
}

// A host with a registry on a backend that carries calls.
class WithHostTools {
 public:
  using Act = std::function<ExecResult(const Program&)>;

  explicit WithHostTools(
      std::shared_ptr<HostToolRegistry> tools, Act act = [](const Program&) { return exited(); },
      const BackendDeclarations& declarations = carrying(HostToolTransport::channel))
      : registry(std::move(tools)) {
    in_process::InProcessSandboxOptions options;
    options.on_exec = [act = std::move(act)](const in_process::Execution& execution) {
      return act(Program(execution));
    };
    backend = std::make_shared<in_process::InProcessSandboxBackend>(
        std::make_shared<in_process::InProcessSandbox>(std::move(options)),
        in_process::InProcessBackendOptions{.declarations = declarations});
  }

  SandboxRouter router(RouterOptions options = {}) const {
    options.min_isolation = Isolation::process;
    return SandboxRouter({backend}, options);
  }
  CodeactWiring wiring() const {
    CodeactSpecOptions options;
    options.host_tools = registry;
    return {.router = router(),
            .spec = codeact_sandbox_spec(options),
            .owner = {"a test", {}, {}},
            .host_tools = registry};
  }
  CodeactRun run() const { return run_codeact(wiring(), key, {}, {}); }
  std::vector<Tool> tools(CodeactToolOptions options = {}) const {
    options.host_tools = registry;
    return make_codeact_tools(
        router(), "agent",
        {[] { return std::string("tenant"); }, [] { return std::string("thread"); }}, options);
  }

  std::shared_ptr<HostToolRegistry> registry;
  std::shared_ptr<in_process::InProcessSandboxBackend> backend;
  SandboxKey key{"tenant", "thread", "agent"};
};

std::string address_in(const Program& program) {
  return program.execution().request.environment.at("CASEMATE_HOST_TOOLS");
}

TEST(CodeactHostTools, AProgramCallsAndTheRunCounts) {
  const WithHostTools host(
      registry_of({echo(), tool_of("whose",
                                   [](const auto&, const HostToolContext& context) {
                                     return boost::json::value(context.caller.key.scope + "/" +
                                                               context.caller.key.thread_id);
                                   })}),
      [](const Program& program) {
        ChannelClient client(address_in(program));
        std::string text = client.call("echo", R"({"a":1})");
        text += client.call("whose", "{}");
        return exited(0, text + client.call("none", "{}"));
      });
  const CodeactRun run = host.run();
  EXPECT_EQ(run.result.stdout, R"({"a":1}"tenant/thread"Error: there is no host tool 'none'.)");
  EXPECT_EQ(run.host_tool_calls, 3U);
  EXPECT_NE(codeact_run_json(run, ArtifactPaths::hidden).find(R"("host_tool_calls":3)"),
            std::string::npos);
}

TEST(CodeactHostTools, EachRunHasItsOwnCapAndAddress) {
  std::set<std::string> addresses;
  const WithHostTools host(registry_of({echo()}, {.max_host_tool_calls_per_run = 1}),
                           [&](const Program& program) {
                             addresses.insert(address_in(program));
                             ChannelClient client(address_in(program));
                             const std::string first = client.call("echo", "{}");
                             return exited(0, first + client.call("echo", "{}"));
                           });
  for (int i = 0; i < 2; ++i) {
    const CodeactRun run = host.run();
    EXPECT_TRUE(run.result.stdout.starts_with("{}Error: the 1 host tool calls"))
        << run.result.stdout;
    EXPECT_EQ(run.host_tool_calls, 2U);
  }
  EXPECT_EQ(addresses.size(), 2U);
}

TEST(CodeactHostTools, NobodyIsThereAfterTheRun) {
  // HT-10
  std::string address;
  const WithHostTools host(registry_of({echo()}), [&](const Program& program) {
    address = address_in(program);
    return exited();
  });
  host.run();
  EXPECT_THROW(ChannelClient{address}, std::system_error);
}

TEST(CodeactHostTools, ARequestCannotReplaceTheAddress) {
  std::string address;
  const WithHostTools host(registry_of({echo()}), [&](const Program& program) {
    address = address_in(program);
    return exited();
  });
  CodeactRequest request;
  request.environment["CASEMATE_HOST_TOOLS"] = "/tmp/mine";
  run_codeact(host.wiring(), host.key, request, {});
  EXPECT_NE(address, "/tmp/mine");
}

TEST(CodeactHostTools, WithoutARegistryNothingIsAskedOrServed) {
  for (const auto& registry : {std::shared_ptr<HostToolRegistry>(), registry_of({})}) {
    CodeactSpecOptions options;
    options.host_tools = registry;
    const SandboxSpec spec = codeact_sandbox_spec(options);
    EXPECT_EQ(spec.requires_capabilities, (CapabilitySet{Capability::exec, Capability::files_in}));
    EXPECT_FALSE(spec.host_tools);
    const WithHostTools host(registry, [](const Program& program) {
      EXPECT_FALSE(program.execution().request.environment.contains("CASEMATE_HOST_TOOLS"));
      return exited();
    });
    EXPECT_EQ(host.run().host_tool_calls, 0U);
  }
}

TEST(CodeactHostTools, AskForTheirCapabilitiesIdentitiesAndSurface) {
  const auto registry =
      registry_of({declared(named("a"), kCarriesOut)},
                  {.max_host_tool_calls_per_run = 5, .response_limits = {1, 2, 3}});
  CodeactSpecOptions options;
  options.host_tools = registry;
  const SandboxSpec spec = codeact_sandbox_spec(options);
  EXPECT_EQ(spec.requires_capabilities,
            (CapabilitySet{Capability::exec, Capability::files_in, Capability::files_out,
                           Capability::host_tools}));
  EXPECT_EQ(spec.identities, std::set<Identity>{Identity::app});
  EXPECT_EQ(spec.host_tools, (HostToolSurface{5, {1, 2, 3}}));
  EXPECT_TRUE(registry->sealed());
}

TEST(CodeactHostTools, AreRefusedWhereTheHostOrTheBackendSaysNo) {
  const WithHostTools host(registry_of({echo()}));
  const SandboxSpec spec = host.wiring().spec;
  expect_refusal<SandboxIdentityDenied>(
      [&] { host.router({.denied_identities = {Identity::app}}).ensure_can_serve(spec); }, "app");
  expect_refusal<SandboxCapabilityDenied>(
      [&] {
        host.router({.denied_capabilities = {Capability::host_tools}}).ensure_can_serve(spec);
      },
      "host_tools");
  const WithHostTools none(
      registry_of({echo()}), [](const Program&) { return exited(); }, able_declarations());
  expect_refusal<SandboxCapabilityNotSupported>([&] { none.tools(); }, "host_tools");
}

BackendDeclarations carrying_files() {
  BackendDeclarations declarations = carrying(HostToolTransport::files);
  declarations.limits.files_in = declarations.limits.files_out = {kGiB, kGiB, 1000};
  return declarations;
}

TEST(CodeactHostTools, TravelAsFilesWhereTheBackendDeclaresSo) {
  // With a real interpreter: tests/over_exec/codeact_over_files_test.cc.
  std::string command;
  const WithHostTools host(
      registry_of({named("lookup")}, {.response_limits = {kKiB, kKiB, 16}}),
      [&](const Program& program) {
        const auto& execution = program.execution();
        const std::string transport = execution.call_directory + "/host_tools/";
        EXPECT_EQ(execution.store.bytes(transport + "program.py"), "print(1)");
        EXPECT_NE(execution.store.bytes(transport + "casemate_tools.py")
                      .value_or("")
                      .find(R"(_NAMES = ["lookup"])"),
                  std::string::npos);
        EXPECT_FALSE(execution.request.environment.contains("CASEMATE_HOST_TOOLS"));
        if (command.empty()) {
          command = std::get<Argv>(execution.request.command).words.at(1);
          EXPECT_EQ(command, transport + "run_program.sh");
          execution.store.put_file(transport + "program_exit_code", "7");
        }
        return exited();
      },
      carrying_files());
  CodeactRequest request;
  request.code = "print(1)";
  EXPECT_EQ(run_codeact(host.wiring(), host.key, request, {}).result.exit_code, 7);
  EXPECT_FALSE(command.empty());
}

TEST(CodeactHostTools, OverFilesTheStreamsAreHeardOnceCutAndNotedLikeAnywhere) {
  std::string module;
  std::string out = "ab......yz";
  const WithHostTools host(
      registry_of({echo()},
                  {.max_host_tool_calls_per_run = 5, .response_limits = {kKiB, kKiB, 16}}),
      [&](const Program& program) {
        const auto& execution = program.execution();
        const std::string transport = execution.call_directory + "/host_tools/";
        if (const auto text = execution.store.bytes(transport + "casemate_tools.py")) {
          module = *text;
          execution.store.put_file(transport + "program_stdout.txt", out);
          execution.store.put_file(transport + "program_stderr.txt", "err\n");
          execution.store.put_file(transport + "program_exit_code", "0");
        }
        return exited();
      },
      carrying_files());
  CodeactWiring wiring = host.wiring();
  wiring.capture_bytes = 4;
  std::string heard;
  CodeactRequest request;
  request.on_output = [&](OutputStream stream, std::span<const char> bytes) {
    heard += stream == OutputStream::out ? "out:" : "err:";
    heard.append(bytes.begin(), bytes.end());
  };
  const CodeactRun run = run_codeact(wiring, host.key, request, {});
  EXPECT_EQ(run.result.stdout, "abyz");
  EXPECT_EQ(run.result.stdout_missing_bytes, 6U);
  EXPECT_EQ(run.result.stderr, "err\n");
  EXPECT_EQ(heard, "out:abyzerr:err\n");
  EXPECT_TRUE(run.notes.empty());
  // The module itself says when the calls are used up.
  EXPECT_NE(module.find("_LIMIT = 5 + 1\n"), std::string::npos);

  out.assign(kKiB, 'o');
  const CodeactRun over = run_codeact(wiring, host.key, {}, {});
  EXPECT_EQ(over.result.stdout, "");
  ASSERT_EQ(over.notes.size(), 1U);
  EXPECT_NE(over.notes[0].find("is left out"), std::string::npos) << over.notes[0];
  EXPECT_TRUE(over.notes[0].ends_with("write a file instead.")) << over.notes[0];
}

// Says that it has a channel, and binds nothing.
class UnboundSandbox final : public Sandbox {
 public:
  explicit UnboundSandbox(std::shared_ptr<Sandbox> sandbox) : sandbox_(std::move(sandbox)) {}
  SandboxInfo info() const override { return sandbox_->info(); }
  std::unique_ptr<Call> open_call(const CallProfile&, const CallControl& control) override {
    return sandbox_->open_call({}, control);
  }

 private:
  std::shared_ptr<Sandbox> sandbox_;
};

class UnboundBackend final : public SandboxBackend {
 public:
  explicit UnboundBackend(std::shared_ptr<SandboxBackend> backend) : backend_(std::move(backend)) {}
  BackendDeclarations declarations() const override { return backend_->declarations(); }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override {
    return std::make_shared<UnboundSandbox>(backend_->acquire(key, spec, control));
  }
  int dispose(const SandboxKey& key) noexcept override { return backend_->dispose(key); }
  int dispose_scope(std::string_view scope, std::string_view thread) noexcept override {
    return backend_->dispose_scope(scope, thread);
  }
  bool dispose_id(std::string_view id) noexcept override { return backend_->dispose_id(id); }

 private:
  std::shared_ptr<SandboxBackend> backend_;
};

TEST(CodeactHostTools, ThatNobodyCouldReachAreARefusalBeforeTheProgramBegins) {
  int begun = 0;
  const WithHostTools host(registry_of({echo()}), [&](const Program&) {
    ++begun;
    return exited();
  });
  CodeactWiring wiring = host.wiring();
  wiring.router = SandboxRouter({std::make_shared<UnboundBackend>(host.backend)},
                                {.min_isolation = Isolation::process});
  expect_refusal<SandboxUnavailable>([&] { run_codeact(wiring, host.key, {}, {}); },
                                     "host tools of a run could not be served");
  EXPECT_EQ(begun, 0);
}

TEST(CodeactHostTools, WiringAndSpecMustAgree) {
  const WithHostTools host(registry_of({echo()}));
  CodeactWiring wiring = host.wiring();
  wiring.host_tools.reset();
  expect_refusal<InvalidArgument>([&] { run_codeact(wiring, host.key, {}, {}); }, "not here");
  wiring = host.wiring();
  wiring.spec.host_tools.reset();
  expect_refusal<InvalidArgument>([&] { run_codeact(wiring, host.key, {}, {}); },
                                  "without the registry");
}

TEST(CodeactHostTools, NeedApprovalWhenOneActsInAUsersNameAndOnlyThen) {
  HostToolRegistryOptions options;
  options.allowed_identities = {Identity::app, Identity::user};
  EXPECT_EQ(WithHostTools(registry_of({echo()})).tools().at(0).approval_mode(),
            ApprovalMode::never_require);
  EXPECT_EQ(WithHostTools(registry_of({echo(), declared(named("u"), kActsAsUser)}, options))
                .tools()
                .at(0)
                .approval_mode(),
            ApprovalMode::always_require);
}

TEST(CodeactHostTools, CapConfidentialityWhereSomethingLeaves) {
  CodeactToolOptions capped;
  capped.outbound_max_confidentiality.emplace("secret");
  const ToolDeclarations cap{{"max_allowed_confidentiality", "secret"}};
  EXPECT_EQ(WithHostTools(registry_of({echo()})).tools(capped).at(0).declarations(), cap);
  EXPECT_EQ(WithHostTools(registry_of({declared(named("o"), kCarriesOut)}))
                .tools(capped)
                .at(0)
                .declarations(),
            cap);
  EXPECT_TRUE(WithHostTools(registry_of({declared(named("p"), kPure)}))
                  .tools(capped)
                  .at(0)
                  .declarations()
                  .empty());
  EXPECT_TRUE(WithHostTools(registry_of({echo()})).tools().at(0).declarations().empty())
      << "no cap is given";
}

TEST(CodeactHostTools, ARegistryIsNotSealedWhereNoSandboxIsConfigured) {
  const auto registry = registry_of({echo()});
  CodeactToolOptions options;
  options.host_tools = registry;
  EXPECT_TRUE(make_codeact_tools(SandboxRouter({}, {}), "agent", {}, options).empty());
  EXPECT_FALSE(registry->sealed());
}

}  // namespace
}  // namespace casemate::codeact
