#pragma once

// A scripted sandbox for tests of kinds and hosts. Nothing is isolated and nothing is executed.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/backends/in_process/store.h"
#include "casemate/core/control.h"
#include "casemate/core/declarations.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"

namespace casemate::in_process {

// A program that is about to "run", for a script to act like it.
struct Execution {
  // As it was asked.
  const ExecRequest& request;
  // Argv joined with shell quoting, or the shell line.
  const std::string& command;
  // Its current directory, absolute.
  const std::string& directory;
  // The call that it belongs to, and that call's directory.
  const std::string& call_id;
  const std::string& call_directory;
  // What `Process::write_stdin` wrote before `wait`.
  const std::string& stdin_bytes;
  // Where it reads and writes files, by absolute path.
  Store& store;
  // Of the `wait` that runs it: a script that blocks must watch `stop`.
  const CallControl& control;
};

// Gives the result of a program. `stdout` and `stderr` of what it returns are the whole streams:
// callbacks, capture and missing counts are made from them here. Called with no lock held; what it
// throws reaches the caller of `wait`.
using OnExec = std::function<ExecResult(const Execution&)>;

// What is about to be done, for `InProcessSandboxOptions::before`.
enum class Operation : std::uint8_t {
  open_call,
  start,
  write_file,
  stat_file,
  read_file,
  remove,
  list_dir,
};

// Its name, as in `GuestFiles`.
std::string_view to_string(Operation operation);

// A result to return from a script: exited, and known to have stopped.
ExecResult finished(std::string stdout_text = {}, int exit_code = 0, std::string stderr_text = {});

struct InProcessSandboxOptions {
  // Marker and standard output: the first marker found within the command (or the code of
  // `run_code`) decides. Without one, `default_stdout`.
  std::vector<std::pair<std::string, std::string>> outputs{};
  std::string default_stdout{};
  // Thrown by `start` and `run_code`, after they were recorded.
  std::exception_ptr raises{};
  // Absolute guest path and what is there.
  std::map<std::string, Seed> seed_files{};
  // Replaces `outputs` and `default_stdout` for programs.
  OnExec on_exec{};
  // Called before each operation with its path (a call's id, a command); what it throws is thrown
  // by the operation, which then had no effect. Called with no lock held.
  std::function<void(Operation, std::string_view)> before{};
  // What `Call::close` answers.
  bool close_is_known = true;
};

// A program that was started.
struct CommandRecord {
  std::string command;
  std::string directory;
  std::optional<std::chrono::nanoseconds> timeout;
  std::map<std::string, std::string> environment;
  std::string call_id;
  Lifetime lifetime = Lifetime::call;
};

struct ProgramRecord {
  std::string code;
  std::optional<std::chrono::nanoseconds> timeout;
};

// A call that was opened, also the ones that last one request.
struct CallRecord {
  std::string id;
  std::string directory;
  bool closed = false;
};

// See `InProcessSandboxOptions`. All calls share one `Store`: a call does not hide its directory
// from another. Files of `Sandbox`'s own methods are the store's, without a call. Thread-safe;
// calls and processes keep the sandbox's state alive.
class InProcessSandbox final : public Sandbox {
 public:
  explicit InProcessSandbox(InProcessSandboxOptions options = {});
  ~InProcessSandbox() override;

  SandboxInfo info() const override;
  std::unique_ptr<Call> open_call(const CallProfile& profile, const CallControl& control) override;
  ExecResult run_code(std::string_view code, std::optional<std::chrono::nanoseconds> timeout,
                      const CallControl& control) override;
  void write_file(std::string_view path, std::span<const char> content,
                  std::string_view working_directory, const CallControl& control) override;
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view working_directory,
                                        const CallControl& control) override;
  std::string read_file(std::string_view path, std::string_view working_directory,
                        std::uint64_t max_bytes, const CallControl& control) override;
  void remove(std::string_view path, std::string_view working_directory, Recursive recursive,
              const CallControl& control) override;
  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view working_directory,
                                     const CallControl& control) override;

  // Takes on the role of a sandbox of that id and spec: what `info` says, where calls get their
  // directories, and that capabilities which are not declared are refused. Before the first one
  // everything is allowed and calls lie under /workspace.
  void serve(const BackendDeclarations& declared, std::string id, const SandboxSpec& spec,
             bool reused);

  Store& store();
  std::vector<CommandRecord> commands() const;
  std::vector<ProgramRecord> programs() const;
  std::vector<CallRecord> calls() const;
  // Signals sent to programs, in order.
  std::vector<int> signals() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace casemate::in_process
