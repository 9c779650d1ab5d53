#pragma once

// For tests of CodeAct: a wiring over the fake, in which a function acts as the program.

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/backends/in_process/backend.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/policy/router.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"

namespace casemate::codeact {

// What a scripted program can do.
class Program {
 public:
  explicit Program(const in_process::Execution& execution) : execution_(execution) {}

  // In its current directory.
  void write(std::string_view name, std::string bytes) const {
    execution_.store.put_file(path(name), std::move(bytes));
  }
  void make(std::string_view name, EntryKind kind) const { execution_.store.put(path(name), kind); }
  std::optional<std::string> read(std::string_view name) const {
    return execution_.store.bytes(path(name));
  }
  std::string source() const {
    return execution_.store.bytes(execution_.call_directory + "/program/program.py").value_or("?");
  }
  const in_process::Execution& execution() const { return execution_; }

 private:
  std::string path(std::string_view name) const {
    return execution_.directory + "/" + std::string(name);
  }

  const in_process::Execution& execution_;
};

inline ExecResult exited(int code = 0, std::string out = "", std::string err = "") {
  ExecResult result;
  result.exit_code = code;
  result.stdout = std::move(out);
  result.stderr = std::move(err);
  result.stopped_known = true;
  return result;
}

inline ExecResult ended_as(Outcome outcome, std::string out = "") {
  ExecResult result = exited(0, std::move(out));
  result.outcome = outcome;
  result.exit_code.reset();
  if (outcome == Outcome::signaled) result.signal = "SIGSEGV";
  if (outcome == Outcome::timed_out) result.limit = Limit::time;
  if (outcome == Outcome::out_of_memory) result.limit = Limit::memory;
  return result;
}

// Keeps what is delivered.
class KeepingSink final : public OutputSink {
 public:
  LandedArtifact deliver(const Artifact& artifact) override {
    if (failure) std::rethrow_exception(failure);
    landed[artifact.name] = artifact.content;
    return {.name = artifact.name,
            .display = artifact.name + " (" + std::to_string(artifact.content.size()) + " bytes)",
            .handle = "/host/out/" + artifact.name,
            .bytes = 0};
  }

  bool lands_all_or_none() const override { return all_or_none; }

  std::map<std::string, std::string> landed;
  std::exception_ptr failure;
  bool all_or_none = false;
};

// A store that counts what it is asked, and can break.
class CountingStore final : public FileStore {
 public:
  explicit CountingStore(std::map<std::string, std::string> files) : files_(std::move(files)) {}

  std::vector<std::string> list() const override {
    ++listings;
    if (failure) std::rethrow_exception(failure);
    std::vector<std::string> names;
    // In an order that no caller may rely on.
    for (auto each = files_.rbegin(); each != files_.rend(); ++each) names.push_back(each->first);
    return names;
  }
  std::optional<std::string> read(std::string_view name, std::uint64_t max_bytes) const override {
    ++reads;
    if (read_failure) std::rethrow_exception(read_failure);
    const std::string& content = files_.at(std::string(name));
    if (vanished) return std::nullopt;
    if (content.size() > max_bytes) {
      throw SandboxTransferCapExceeded("/host/shared/" + std::string(name) + " is too big");
    }
    return content;
  }

  mutable int listings = 0;
  mutable int reads = 0;
  bool vanished = false;
  std::exception_ptr failure;
  std::exception_ptr read_failure;

 private:
  std::map<std::string, std::string> files_;
};

inline BackendDeclarations able_declarations() {
  BackendDeclarations declared = in_process::default_declarations();
  declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out};
  return declared;
}

class Scripted {
 public:
  using Act = std::function<ExecResult(const Program&)>;

  explicit Scripted(
      Act act = [](const Program&) { return exited(); }, const CodeactSpecOptions& options = {},
      in_process::InProcessSandboxOptions sandbox_options = {})
      : act_(std::move(act)),
        sandbox(make_sandbox(std::move(sandbox_options))),
        backend(std::make_shared<in_process::InProcessSandboxBackend>(
            sandbox, in_process::InProcessBackendOptions{.declarations = able_declarations()})),
        router({backend}, {.min_isolation = Isolation::process}),
        sink(std::make_shared<KeepingSink>()),
        wiring{.router = router,
               .spec = codeact_sandbox_spec(options),
               .outputs = options.outputs,
               .file_store = nullptr,
               .output_sink = options.outputs == CodeactOutputs::none ? nullptr : sink,
               .owner = {
                   "a test", [this](const ReclaimFailure& each) { failures.push_back(each); },
                   [this](LogLevel, std::string_view text) { log += std::string(text) + "\n"; }}} {}

  CodeactRun run(const CodeactRequest& request, const CallControl& control = {}) {
    return run_codeact(wiring, key, request, control);
  }

  // Nothing was read, and no sandbox was asked for.
  bool untouched() const { return backend->keys().empty(); }

 private:
  std::shared_ptr<in_process::InProcessSandbox> make_sandbox(
      in_process::InProcessSandboxOptions options) {
    options.on_exec = [this](const in_process::Execution& execution) {
      return act_(Program(execution));
    };
    return std::make_shared<in_process::InProcessSandbox>(std::move(options));
  }

  Act act_;

 public:
  std::shared_ptr<in_process::InProcessSandbox> sandbox;
  std::shared_ptr<in_process::InProcessSandboxBackend> backend;
  SandboxRouter router;
  std::shared_ptr<KeepingSink> sink;
  std::vector<ReclaimFailure> failures;
  std::string log;
  CodeactWiring wiring;
  SandboxKey key{"tenant", "thread", "agent"};
};

inline CodeactRequest code(std::string text = "print(1)") {
  CodeactRequest request;
  request.code = std::move(text);
  return request;
}

inline CodeactRequest with_files(std::vector<std::string> files) {
  CodeactRequest request = code();
  request.files = std::move(files);
  return request;
}

}  // namespace casemate::codeact
