#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "casemate/core/capture.h"
#include "casemate/core/sandbox.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/connection.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// One exec connection. See `Process`.
class AgentProcess : public Process {
 public:
  // `connection` is attached already; the first frame, an `exec` or the `release` of what is held
  // at its other end, is sent at once.
  AgentProcess(sys::UniqueFd connection, FrameType type, const std::string& payload,
               const ExecRequest& request, std::shared_ptr<const AgentSandboxParts> parts,
               std::shared_ptr<CallAccounting> accounting,
               std::shared_ptr<const std::atomic<bool>> call_closed);
  ~AgentProcess() override;

  // Waits until the guest said that the program runs. Throws as `Call::start`. Returns also when a
  // stop came first; then `wait` has the outcome.
  void await_start(const CallControl& control);

  // The same for a program that is held. False when it ended before the guest said `begun`; then
  // nothing of the program has run.
  bool await_release(const CallControl& control);

  // Makes the result of a program that was cancelled before anything of it existed.
  static std::unique_ptr<Process> never_started();

  ExecResult wait(const CallControl& control) override;
  void write_stdin(std::span<const char> bytes, const CallControl& control) override;
  void close_stdin() override;
  void signal(int number) override;

 private:
  enum class State { requested, begun, running, ended };
  enum class Goal { started, room_for_input, ended };

  // Input of the program, when there is one.
  struct Input {
    StdinMode mode = StdinMode::empty;
    int descriptor = -1;
    std::uint32_t under_way = 0;
    bool ended = false;   // by the host
    bool closed = false;  // by the program
    bool open() const { return mode != StdinMode::empty && !ended && !closed; }
  };

  void pump(Goal goal, const CallControl& control);
  bool reached(Goal goal) const;
  void wait_for_something(const CallControl& control, const StopEvent& stop, Goal goal);
  void take_frames(Goal goal);
  void handle(const Frame& frame);
  void take_output(OutputStream stream, const Frame& frame);
  void finish(const Ended& ended);
  void fail();
  void stream_ended();
  void fill_streams(ExecResult& result);
  void request_cancel();
  void check_time(const CallControl& control);
  std::optional<sys::SteadyTime> next_time(const CallControl& control) const;
  void forward_input();
  void end_input();
  void put(FrameType type, std::string_view payload = {});
  void flush();
  bool has_pending();
  void disconnect() noexcept;
  void abandon() noexcept;
  [[noreturn]] void fail_start(const Failure& failure);

  std::shared_ptr<const AgentSandboxParts> parts_;
  std::shared_ptr<CallAccounting> accounting_;
  std::shared_ptr<const std::atomic<bool>> call_closed_;
  sys::OwnerProcess owner_;
  CallCounters before_;
  OutputCallback on_output_;
  StreamCapture out_;
  StreamCapture err_;
  std::optional<std::chrono::nanoseconds> timeout_;

  // `signal` may come from any thread: what is sent, and whether there is still a connection.
  std::mutex sending_;
  sys::UniqueFd connection_;
  FrameWriter writer_;
  bool guest_reads_ = true;

  FrameReader reader_;
  // Started by its release, and whether the guest said that it begins.
  bool held_ = false;
  bool begun_ = false;
  // Once it runs, only its own end and a stop end it.
  bool stays_ = false;
  State state_ = State::requested;
  Input input_;
  sys::SteadyTime requested_at_;
  std::optional<sys::SteadyTime> backstop_at_;
  std::optional<sys::SteadyTime> cancel_until_;
  std::optional<ExecResult> result_;
  std::exception_ptr failure_;
};

}  // namespace casemate::guest
