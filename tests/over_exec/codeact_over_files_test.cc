// CodeAct on a provider that has exec and files and nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <utility>

#include "casemate/conformance/conformance.h"
#include "casemate/host_tools/tools_test.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/policy/router.h"
#include "tests/linux/linux_test.h"
#include "tests/over_exec/resident_guest.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using testing::HasSubstr;

// Runs its command when it is waited for.
class ResidentProcess final : public Process {
 public:
  ResidentProcess(ResidentGuest& guest, ExecRequest request)
      : guest_(guest), request_(std::move(request)) {}
  ExecResult wait(const CallControl&) override { return guest_.exec(request_); }
  void write_stdin(std::span<const char>, const CallControl&) override {}
  void close_stdin() override {}
  void signal(int) override {}

 private:
  ResidentGuest& guest_;
  ExecRequest request_;
};

class FilesOnlyCall final : public Call {
 public:
  explicit FilesOnlyCall(Sandbox& sandbox) : guest_(sandbox) {}

  const std::string& id() const override { return guest_.call().id(); }
  const std::string& directory() const override { return guest_.call().directory(); }
  std::unique_ptr<Process> start(const ExecRequest& request, const CallControl&) override {
    return std::make_unique<ResidentProcess>(guest_, request);
  }
  bool close() noexcept override { return true; }
  void write_file(std::string_view path, std::span<const char> content, std::string_view directory,
                  const CallControl& control) override {
    guest_.call().write_file(path, content, directory, control);
  }
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view directory,
                                        const CallControl& control) override {
    return guest_.call().stat_file(path, directory, control);
  }
  std::string read_file(std::string_view path, std::string_view directory, std::uint64_t max_bytes,
                        const CallControl& control) override {
    return guest_.call().read_file(path, directory, max_bytes, control);
  }
  void remove(std::string_view path, std::string_view directory, Recursive recursive,
              const CallControl& control) override {
    guest_.call().remove(path, directory, recursive, control);
  }
  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view directory,
                                     const CallControl& control) override {
    return guest_.call().list_dir(path, directory, control);
  }

 private:
  ResidentGuest guest_;
};

class FilesOnlySandbox final : public Sandbox {
 public:
  explicit FilesOnlySandbox(std::shared_ptr<Sandbox> sandbox) : sandbox_(std::move(sandbox)) {}

  SandboxInfo info() const override {
    SandboxInfo info = sandbox_->info();
    info.backend = "files-only";
    return info;
  }
  std::unique_ptr<Call> open_call(const CallProfile& profile, const CallControl&) override {
    if (profile.host_tool_socket >= 0) throw SandboxCapabilityNotSupported("no channel here");
    return std::make_unique<FilesOnlyCall>(*sandbox_);
  }

 private:
  std::shared_ptr<Sandbox> sandbox_;
};

// The linux backend as one that nothing of ours can live in: it says what it has, and no more.
class FilesOnlyBackend final : public SandboxBackend {
 public:
  explicit FilesOnlyBackend(SandboxBackend& backend) : backend_(backend) {}

  BackendDeclarations declarations() const override {
    BackendDeclarations declared = backend_.declarations();
    declared.name = "files-only";
    declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                             Capability::host_tools};
    declared.host_tool_transport = HostToolTransport::files;
    declared.limits.files_in = declared.limits.files_out = {kGiB, kGiB, 100'000};
    return declared;
  }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override {
    return std::make_shared<FilesOnlySandbox>(backend_.acquire(key, spec, control));
  }
  int dispose(const SandboxKey& key) noexcept override { return backend_.dispose(key); }
  int dispose_scope(std::string_view scope, std::string_view thread) noexcept override {
    return backend_.dispose_scope(scope, thread);
  }
  bool dispose_id(std::string_view id) noexcept override { return backend_.dispose_id(id); }

 private:
  SandboxBackend& backend_;
};

class CodeactOverFiles : public linux_tests::LinuxTest {
 protected:
  CodeactRun run(std::string code) {
    request.code = std::move(code);
    CodeactSpecOptions options;
    options.host_tools = registry;
    const SandboxRouter router({std::make_shared<FilesOnlyBackend>(backend())},
                               {.min_isolation = Isolation::container});
    const CodeactWiring wiring{.router = router,
                               .spec = codeact_sandbox_spec(options),
                               .file_store = store,
                               .owner = {"a test", {}, {}},
                               .host_tools = registry};
    CodeactRun ended = run_codeact(wiring, key(), request, control);
    router.dispose(key());
    return ended;
  }

  std::shared_ptr<HostToolRegistry> registry =
      registry_of({echo()}, {.response_limits = {64 * kKiB, kMiB, 100}});
  std::shared_ptr<const FileStore> store;
  CodeactRequest request;
  CallControl control;
};

TEST_F(CodeactOverFiles, TheProbesOfHostToolsPass) {
  conformance::Subject subject(std::make_shared<FilesOnlyBackend>(backend()));
  conformance::ConformanceOptions options;
  options.suites = {conformance::Suite::host_tools};
  const conformance::Report report = conformance::run_conformance(subject, options);
  EXPECT_EQ(report.failures(), "");
  EXPECT_EQ(report.count(conformance::Status::passed), 4U);
  // What is of a channel only.
  EXPECT_EQ(report.count(conformance::Status::skipped), 3U);
}

TEST_F(CodeactOverFiles, CallsAreAnsweredAndCounted) {
  const CodeactRun ended = run(R"py(
import casemate_tools, sys
print(casemate_tools.call("echo", a=[1, 2.5, None, "ü"]), casemate_tools.echo(name=1))
try:
    casemate_tools.call("none")
except casemate_tools.HostToolError as error:
    print(error, file=sys.stderr)
sys.exit(3)
)py");
  EXPECT_EQ(ended.result.stdout, "{'a': [1, 2.5, None, 'ü']} {'name': 1}\n");
  EXPECT_EQ(ended.result.stderr, "Error: there is no host tool 'none'.\n");
  EXPECT_EQ(ended.result.exit_code, 3);
  EXPECT_EQ(ended.host_tool_calls, 3U);
  EXPECT_EQ(ended.sandbox.backend, "files-only");
}

TEST_F(CodeactOverFiles, WhatIsSharedArguedAndSetReachesTheProgram) {
  class OneFile final : public FileStore {
    std::vector<std::string> list() const override { return {"helper.py", "json.py"}; }
    std::optional<std::string> read(std::string_view name, std::uint64_t) const override {
      return name == "helper.py" ? "VALUE = 42\n" : "raise SystemExit('taken')\n";
    }
  };
  store = std::make_shared<OneFile>();
  request.files = {"helper.py", "json.py"};
  request.arguments = {"one", "two words", "*"};
  request.environment = {{"COLOUR", "red"}, {"PYTHONPATH", "/opt/theirs"}};
  std::string heard;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    heard.append(bytes.begin(), bytes.end());
  };
  const CodeactRun ended = run(R"py(
import casemate_tools, helper, os, sys
print(helper.VALUE, sys.argv[1:], os.environ["COLOUR"], "/opt/theirs" in sys.path, sorted(os.listdir()))
print(casemate_tools.echo(a=1))
)py");
  EXPECT_EQ(ended.result.stderr, "");
  EXPECT_EQ(ended.result.stdout,
            "42 ['one', 'two words', '*'] red True ['helper.py', 'json.py']\n{'a': 1}\n");
  EXPECT_EQ(heard, ended.result.stdout);
}

TEST_F(CodeactOverFiles, ATimeoutIsAnOutcomeAndKeepsWhatWasPrinted) {
  request.timeout = std::chrono::seconds(3);
  const CodeactRun ended = run(R"py(
import time
print("before", flush=True)
time.sleep(600)
)py");
  EXPECT_EQ(ended.result.outcome, Outcome::timed_out);
  EXPECT_EQ(ended.result.limit, Limit::time);
  EXPECT_EQ(ended.result.stdout, "before\n");
  EXPECT_FALSE(ended.result.stopped_known);
  ASSERT_EQ(ended.notes.size(), 1U);
  EXPECT_THAT(ended.notes[0], HasSubstr("3 s and could not be shown to have stopped"));
}

TEST_F(CodeactOverFiles, CancellingEndsAProgramThatWaitsForItsAnswer) {
  std::stop_source stop;
  control.stop = stop.get_token();
  registry = registry_of({tool_of("stuck",
                                  [&](const auto&, const HostToolContext& context) {
                                    stop.request_stop();
                                    std::mutex mutex;
                                    std::unique_lock lock(mutex);
                                    std::condition_variable_any().wait(lock, context.stop,
                                                                       [] { return false; });
                                    return boost::json::value(1);
                                  })},
                         {.response_limits = {64 * kKiB, kMiB, 100}});
  const CodeactRun ended = run("import casemate_tools\ncasemate_tools.call('stuck')\n");
  EXPECT_EQ(ended.result.outcome, Outcome::cancelled);
  EXPECT_EQ(ended.host_tool_calls, 1U);
  EXPECT_EQ(registry->abandoned_calls(), 0U);
}

TEST_F(CodeactOverFiles, StandardInputIsRefusedBeforeAnythingRuns) {
  request.stdin_descriptor = STDIN_FILENO;
  expect_refusal<SandboxCapabilityNotSupported>([&] { run("print('ran')"); }, "standard input");
  backend().dispose(key());
}

}  // namespace
}  // namespace casemate
