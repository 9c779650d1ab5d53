#include "casemate/guest/agent_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/sys/deadline.h"

namespace casemate::guest {
namespace {

using std::chrono::nanoseconds;
using sys::SteadyTime;
using Clock = SteadyTime::clock;

// After so many frames the caller's bounds are looked at again, however much more is there.
constexpr int kFramesAtOnce = 16;

ExecResult cancelled_result(bool stopped_known) {
  ExecResult result;
  result.outcome = Outcome::cancelled;
  result.stopped_known = stopped_known;
  return result;
}

// A program whose start was cancelled before anything was sent.
class NeverStarted : public Process {
 public:
  ExecResult wait(const CallControl& /*control*/) override { return cancelled_result(true); }
  void write_stdin(std::span<const char> /*bytes*/, const CallControl& /*control*/) override {}
  void close_stdin() override {}
  void signal(int /*number*/) override {}
};

}  // namespace

AgentProcess::AgentProcess(sys::UniqueFd connection, FrameType type, const std::string& payload,
                           const ExecRequest& request,
                           std::shared_ptr<const AgentSandboxParts> parts,
                           std::shared_ptr<CallAccounting> accounting,
                           std::shared_ptr<const std::atomic<bool>> call_closed)
    : parts_(std::move(parts)),
      accounting_(std::move(accounting)),
      call_closed_(std::move(call_closed)),
      on_output_(request.on_output),
      out_(request.capture_bytes),
      err_(request.capture_bytes),
      timeout_(request.timeout),
      connection_(std::move(connection)),
      writer_(connection_.get()),
      reader_(connection_.get()),
      held_(type == FrameType::release),
      stays_(request.lifetime == Lifetime::sandbox),
      requested_at_(Clock::now()) {
  input_.mode = request.stdin_mode;
  input_.descriptor = request.stdin_descriptor;
  if (accounting_) before_ = accounting_->snapshot();
  put(type, payload);
}

AgentProcess::~AgentProcess() {
  if (owner_.is_current()) abandon();
}

std::unique_ptr<Process> AgentProcess::never_started() { return std::make_unique<NeverStarted>(); }

void AgentProcess::await_start(const CallControl& control) { pump(Goal::started, control); }

bool AgentProcess::await_release(const CallControl& control) try {
  pump(Goal::started, control);
  return true;
} catch (const SandboxUnavailable& refusal) {
  if (begun_ || control.stop.stop_requested() || *call_closed_) throw;
  write_log(parts_->log, LogLevel::debug,
            fmt::format("sandbox {}: a program that was held is started afresh: {}",
                        parts_->info.id, refusal.message()));
  return false;
}

ExecResult AgentProcess::wait(const CallControl& control) {
  pump(Goal::ended, control);
  return *result_;
}

void AgentProcess::write_stdin(std::span<const char> bytes, const CallControl& control) {
  if (input_.mode != StdinMode::piped) {
    throw InvalidArgument("write_stdin is refused: the program's standard input is not piped");
  }
  if (input_.ended) throw InvalidArgument("write_stdin is refused: the input was closed before");
  while (!bytes.empty() && state_ == State::running && input_.open()) {
    const std::size_t room = kStdinWindow - input_.under_way;
    const std::size_t size = std::min({bytes.size(), room, kMaxData});
    if (size != 0) {
      put(FrameType::stdin_data, {bytes.data(), size});
      input_.under_way += static_cast<std::uint32_t>(size);
      bytes = bytes.subspan(size);
    }
    if (!bytes.empty()) pump(Goal::room_for_input, control);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void AgentProcess::close_stdin() { end_input(); }

void AgentProcess::signal(int number) {
  if (number < 1 || number > 64) {
    throw InvalidArgument(fmt::format("signal {} is refused: it is not within 1 to 64", number));
  }
  put(FrameType::signal, encode_signal(number));
}

// -- The loop ------------------------------------------------------------------------------------

// Any failure ends the exec, and every later `wait` fails the same way.
void AgentProcess::pump(Goal goal, const CallControl& control) try {
  if (failure_) std::rethrow_exception(failure_);
  if (reached(goal)) return;
  const StopEvent stop(control.stop);
  // What the guest said while nobody listened waits in the socket: its time counts from here.
  if (backstop_at_) {
    backstop_at_ = std::max(*backstop_at_, sys::deadline_after(parts_->timing.backstop));
  }
  while (true) {
    if (control.stop.stop_requested() && !cancel_until_) request_cancel();
    wait_for_something(control, stop, goal);
    flush();
    take_frames(goal);
    if (reached(goal)) return;
    check_time(control);
    if (reached(goal)) return;
  }
} catch (...) {
  if (!failure_) fail();
  std::rethrow_exception(failure_);
}

bool AgentProcess::reached(Goal goal) const {
  if (state_ == State::ended) return true;
  switch (goal) {
    case Goal::started:
      return state_ == State::running;
    case Goal::room_for_input:
      return !input_.open() || input_.under_way < kStdinWindow;
    case Goal::ended:
      return false;
  }
  return false;
}

void AgentProcess::wait_for_something(const CallControl& control, const StopEvent& stop,
                                      Goal goal) {
  const bool forward = goal == Goal::ended && state_ == State::running &&
                       input_.mode == StdinMode::forwarded && input_.open() &&
                       input_.under_way < kStdinWindow;
  std::array<pollfd, 3> entries{};
  entries[0] = {connection_.get(), short(POLLIN | (has_pending() ? POLLOUT : 0)), 0};
  entries[1] = {cancel_until_ ? -1 : stop.fd(), POLLIN, 0};
  entries[2] = {forward ? input_.descriptor : -1, POLLIN, 0};
  sys::poll_until(entries, next_time(control));
  if (entries[2].revents != 0) forward_input();
}

std::optional<SteadyTime> AgentProcess::next_time(const CallControl& control) const {
  std::optional<SteadyTime> next = control.deadline;
  const auto consider = [&](std::optional<SteadyTime> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(cancel_until_);
  consider(backstop_at_);
  if (state_ != State::running) consider(requested_at_ + parts_->timing.silence);
  return next;
}

void AgentProcess::check_time(const CallControl& control) {
  const SteadyTime now = Clock::now();
  if (cancel_until_ && now >= *cancel_until_) {
    disconnect();
    result_ = cancelled_result(false);
    result_->wall = now - requested_at_;
    fill_streams(*result_);
    state_ = State::ended;
    return;
  }
  const std::optional<SteadyTime> next = next_time(control);
  if (!next || now < *next) return;
  // The provider is silent: there is nobody left to wait for.
  disconnect();
  throw_timed_out(control);
}

// Stops at the goal: what comes behind `started` is for `wait`, as the callbacks are.
void AgentProcess::take_frames(Goal goal) {
  for (int i = 0; i < kFramesAtOnce && !reached(goal); ++i) {
    std::optional<Frame> frame;
    try {
      frame = reader_.next();
    } catch (const std::system_error&) {
      return stream_ended();
    }
    if (frame) {
      handle(*frame);
      reader_.reuse(std::move(frame->payload));
    } else if (reader_.closed()) {
      return stream_ended();
    } else {
      return;
    }
  }
}

void AgentProcess::handle(const Frame& frame) {
  const auto type = static_cast<FrameType>(frame.type);
  if (type == FrameType::failed && (state_ == State::requested || state_ == State::begun)) {
    fail_start(decode_failure(frame.payload));
  }
  if (type == FrameType::begun && state_ == State::requested) {
    expect_empty(frame);
    state_ = State::begun;
    begun_ = true;
    return;
  }
  if (type == FrameType::started && state_ == State::begun) {
    expect_empty(frame);
    state_ = State::running;
    if (timeout_) {
      backstop_at_ = sys::later_than(sys::deadline_after(*timeout_), parts_->timing.backstop);
    }
    return;
  }
  if (state_ != State::running) throw ProtocolError("a frame before the program's start");
  switch (type) {
    case FrameType::output_out:
      return take_output(OutputStream::out, frame);
    case FrameType::output_err:
      return take_output(OutputStream::err, frame);
    case FrameType::stdin_taken: {
      const std::uint32_t taken = decode_stdin_taken(frame.payload);
      if (taken > input_.under_way) throw ProtocolError("more input taken than was sent");
      input_.under_way -= taken;
      return;
    }
    case FrameType::stdin_closed:
      expect_empty(frame);
      if (input_.mode == StdinMode::empty) throw ProtocolError("an end of input without input");
      input_.closed = true;
      return;
    case FrameType::ended:
      return finish(decode_ended(frame.payload));
    default:
      throw ProtocolError("a frame that no guest sends while a program runs");
  }
}

void AgentProcess::take_output(OutputStream stream, const Frame& frame) {
  expect_data(frame);
  (stream == OutputStream::out ? out_ : err_).append(frame.payload);
  if (!on_output_) return;
  // The time that the host's own code takes is not the guest's.
  const SteadyTime before = Clock::now();
  on_output_(stream, frame.payload);
  const auto taken = Clock::now() - before;
  if (backstop_at_) *backstop_at_ += taken;
  if (cancel_until_) *cancel_until_ += taken;
}

void AgentProcess::request_cancel() {
  cancel_until_ = sys::deadline_after(parts_->timing.cancel_grace);
  put(FrameType::cancel);
}

// Ends the program whoever is at fault, and waits a bounded time for that to be done.
void AgentProcess::abandon() noexcept try {
  on_output_ = nullptr;
  const bool left = stays_ && state_ == State::running && !cancel_until_;
  if (connection_ && !left) {
    if (!cancel_until_) request_cancel();
    while (state_ != State::ended && Clock::now() < *cancel_until_) {
      std::array<pollfd, 1> entries{
          pollfd{connection_.get(), short(POLLIN | (has_pending() ? POLLOUT : 0)), 0}};
      if (sys::poll_until(entries, cancel_until_) == 0) break;
      flush();
      take_frames(Goal::ended);
    }
  }
  disconnect();
  state_ = State::ended;
} catch (...) {
  disconnect();
  state_ = State::ended;
}

// -- Sending -------------------------------------------------------------------------------------

void AgentProcess::forward_input() {
  std::string buffer(std::min<std::size_t>(kStdinWindow - input_.under_way, kMaxData), '\0');
  const ssize_t got = read(input_.descriptor, buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return end_input();
  put(FrameType::stdin_data, {buffer.data(), static_cast<std::size_t>(got)});
  input_.under_way += static_cast<std::uint32_t>(got);
}

void AgentProcess::end_input() {
  if (!input_.open()) return;
  input_.ended = true;
  put(FrameType::stdin_end);
}

void AgentProcess::put(FrameType type, std::string_view payload) {
  const std::lock_guard lock(sending_);
  if (!connection_ || !guest_reads_) return;
  try {
    writer_.send(wire(type), payload);
  } catch (const std::system_error&) {
    // It has ended: what it sent before is still to be read.
    guest_reads_ = false;
  }
}

void AgentProcess::flush() {
  const std::lock_guard lock(sending_);
  if (!connection_ || !guest_reads_) return;
  try {
    writer_.flush();
  } catch (const std::system_error&) {
    guest_reads_ = false;
  }
}

bool AgentProcess::has_pending() {
  const std::lock_guard lock(sending_);
  return guest_reads_ && writer_.pending() != 0;
}

void AgentProcess::disconnect() noexcept {
  const std::lock_guard lock(sending_);
  connection_.reset();
}

}  // namespace casemate::guest
