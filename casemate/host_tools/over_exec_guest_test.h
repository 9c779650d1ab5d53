#pragma once

// For tests of the file transport: a guest in memory that is stepped by the host's own looks, so
// that nothing depends on time.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "casemate/backends/in_process/sandbox.h"
#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/tools_test.h"

namespace casemate {

inline constexpr const char* kSaysSession = "casemate-tools: session\n";

class ScriptedGuest {
 public:
  // The next thing that the program does; called before each look of the host's, once started.
  std::function<void(ScriptedGuest&)> step = [](ScriptedGuest&) {};
  // Called before each operation of the host's, started or not.
  std::function<void(in_process::Operation, std::string_view)> before;
  ExecResult launcher = in_process::finished(kSaysSession);
  ExecResult kill = in_process::finished();
  ExecResult rm = in_process::finished();
  std::shared_ptr<HostToolRegistry> registry = registry_of({echo()});
  OverExecOptions options = fast();

  ScriptedGuest() {
    in_process::InProcessSandboxOptions scripted;
    scripted.on_exec = [this](const in_process::Execution& execution) {
      return on_exec(execution);
    };
    scripted.before = [this](in_process::Operation operation, std::string_view path) {
      if (before) before(operation, path);
      if (started_ && operation == in_process::Operation::stat_file) step(*this);
    };
    sandbox_ = std::make_unique<in_process::InProcessSandbox>(std::move(scripted));
    call_ = sandbox_->open_call({}, {});
    layout_.emplace(guest_run_layout(call_->directory()));
  }

  static OverExecOptions fast() {
    OverExecOptions options;
    options.timeout = std::chrono::seconds(60);
    options.poll_interval = std::chrono::microseconds(100);
    return options;
  }

  OverExecResult run(const CallControl& control = {}) {
    if (!run_) run_.emplace(registry, HostToolRunOptions{});
    return host_tool_calls_over_exec(ExecAndFiles(*call_), *run_, layout(), options, control);
  }

  // -- As the program
  // ------------------------------------------------------------------------------
  in_process::Store& store() { return sandbox_->store(); }
  void request(std::uint64_t number, std::string text) {
    store().put_file(layout().request(number), std::move(text));
  }
  void call_echo(std::uint64_t number) {
    request(number,
            R"({"id": "x", "name": "echo", "arguments": {"n": )" + std::to_string(number) + "}}");
  }
  std::optional<std::string> response(std::uint64_t number) {
    return store().bytes(layout().response(number));
  }
  void print(std::string out, std::string err = {}) {
    store().put_file(layout().standard_output(), std::move(out));
    store().put_file(layout().standard_error(), std::move(err));
  }
  void exit(std::string code = "0") { store().put_file(layout().exit_code(), std::move(code)); }
  void record(std::string pid, std::optional<std::string> session = {}) {
    store().put_file(layout().pid(), std::move(pid));
    if (session) store().put_file(layout().session(), *std::move(session));
  }

  const GuestRunLayout& layout() const { return *layout_; }
  in_process::InProcessSandbox& sandbox() { return *sandbox_; }
  Call& call() { return *call_; }
  HostToolRun& host_run() { return *run_; }
  // What was said to `kill`, in order.
  std::vector<std::string> kills() const { return kills_; }
  bool cleaned_up() { return !store().contains(layout().transport_directory()); }

 private:
  ExecResult on_exec(const in_process::Execution& execution) {
    const std::string& command = execution.command;
    if (command.starts_with("sh ")) {
      started_ = true;
      for (const std::string& stream : {layout().standard_output(), layout().standard_error()}) {
        if (!store().contains(stream)) store().put_file(stream, "");
      }
      return launcher;
    }
    if (command.starts_with("kill ")) {
      kills_.push_back(command.substr(5));
      return kill;
    }
    if (command.starts_with("rm -rf -- ") && rm.exit_code == 0) {
      store().erase(command.substr(10));
    }
    return rm;
  }

  bool started_ = false;
  std::vector<std::string> kills_;
  std::unique_ptr<in_process::InProcessSandbox> sandbox_;
  std::unique_ptr<Call> call_;
  std::optional<GuestRunLayout> layout_;
  std::optional<HostToolRun> run_;
};

}  // namespace casemate
