#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <utility>

#include "casemate/backends/in_process/state.h"
#include "casemate/core/capture.h"
#include "casemate/core/errors.h"

namespace casemate::in_process {
namespace {

bool ends_a_program(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

ExecResult ended_by(int signal) {
  ExecResult result;
  result.outcome = Outcome::signaled;
  result.signal = signal_name(signal);
  result.stopped_known = true;
  return result;
}

ExecResult cancelled() {
  ExecResult result;
  result.outcome = Outcome::cancelled;
  result.stopped_known = true;
  return result;
}

// Runs its script inside the first `wait`; until then it is "blocked".
class ScriptedProcess final : public Process {
 public:
  ScriptedProcess(std::shared_ptr<InProcessSandbox::State> state,
                  std::shared_ptr<const CallScope> scope, ExecRequest request, std::string command,
                  std::string directory)
      : state_(std::move(state)),
        scope_(std::move(scope)),
        request_(std::move(request)),
        command_(std::move(command)),
        directory_(std::move(directory)) {}

  ExecResult wait(const CallControl& control) override {
    if (result_) return *result_;
    const auto started = std::chrono::steady_clock::now();
    // What stands here if the next line throws: the program was killed.
    result_ = ended_by(SIGKILL);
    ExecResult result = deliver(run(control), request_);
    result.wall = std::chrono::steady_clock::now() - started;
    result_ = std::move(result);
    return *result_;
  }

  void write_stdin(std::span<const char> bytes, const CallControl& control) override {
    if (request_.stdin_mode != StdinMode::piped) {
      throw InvalidArgument("the program was not started with a piped standard input",
                            "start it with StdinMode::piped");
    }
    if (result_ || input_closed_ || control.stop.stop_requested()) return;
    check_control(control, "write_stdin");
    stdin_bytes_.append(bytes.begin(), bytes.end());
  }

  void close_stdin() override { input_closed_ = true; }

  void signal(int number) override {
    if (number < 1 || number > 64) {
      throw InvalidArgument(fmt::format("{} is no signal: they are 1 to 64", number),
                            "use a number of <csignal>");
    }
    const std::lock_guard lock(state_->mutex);
    state_->signals.push_back(number);
    int none = 0;
    if (ends_a_program(number)) ending_signal_.compare_exchange_strong(none, number);
  }

 private:
  ExecResult run(const CallControl& control) {
    if (!scope_->open) return ended_by(SIGKILL);
    if (const int signal = ending_signal_; signal != 0) return ended_by(signal);
    if (control.stop.stop_requested()) return cancelled();
    check_control(control, "wait");
    const InProcessSandboxOptions& options = state_->options;
    if (!options.on_exec) return finished(scripted_stdout(options, command_));
    return options.on_exec({.request = request_,
                            .command = command_,
                            .directory = directory_,
                            .call_id = scope_->id,
                            .call_directory = scope_->directory,
                            .stdin_bytes = stdin_bytes_,
                            .store = state_->store,
                            .control = control});
  }

  const std::shared_ptr<InProcessSandbox::State> state_;
  const std::shared_ptr<const CallScope> scope_;
  const ExecRequest request_;
  const std::string command_;
  const std::string directory_;
  std::optional<ExecResult> result_;
  std::string stdin_bytes_;
  bool input_closed_ = false;
  std::atomic<int> ending_signal_{0};
};

}  // namespace

ExecResult deliver(ExecResult result, const ExecRequest& request) {
  if (result.outcome == Outcome::exited && !result.exit_code) result.exit_code = 0;
  const auto cut = [&](OutputStream stream, std::string& bytes, std::uint64_t& missing,
                       std::uint64_t& cut_at) {
    if (request.on_output && !bytes.empty()) request.on_output(stream, bytes);
    StreamCapture capture(request.capture_bytes);
    capture.append(bytes);
    CapturedStream kept = capture.take();
    bytes = std::move(kept.bytes);
    missing = kept.missing_bytes;
    cut_at = kept.cut_at;
  };
  cut(OutputStream::out, result.stdout, result.stdout_missing_bytes, result.stdout_cut_at);
  cut(OutputStream::err, result.stderr, result.stderr_missing_bytes, result.stderr_cut_at);
  return result;
}

std::unique_ptr<Process> make_process(std::shared_ptr<InProcessSandbox::State> state,
                                      std::shared_ptr<const CallScope> scope, ExecRequest request,
                                      std::string command, std::string directory) {
  return std::make_unique<ScriptedProcess>(std::move(state), std::move(scope), std::move(request),
                                           std::move(command), std::move(directory));
}

}  // namespace casemate::in_process
