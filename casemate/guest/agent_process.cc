#include "casemate/guest/agent_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"

namespace casemate::guest {
namespace {

using std::chrono::nanoseconds;
using sys::SteadyTime;
using Clock = SteadyTime::clock;

// After so many frames the caller's bounds are looked at again, however much more is there.
constexpr int kFramesAtOnce = 16;

void check_word(std::string_view what, std::string_view text) {
  if (text.find('\0') == std::string_view::npos) return;
  throw InvalidArgument(fmt::format("{} of a program holds a NUL byte", what));
}

[[noreturn]] void refuse_size() {
  throw SandboxFileError(
      "the program's arguments and environment are too long: at most 128 KiB each and 1 MiB in all",
      E2BIG, "hand over large data as a file or on standard input");
}

std::string error_text(int error) { return std::generic_category().message(error); }

Outcome outcome_of(EndCause cause) {
  switch (cause) {
    case EndCause::exited:
      return Outcome::exited;
    case EndCause::signaled:
      return Outcome::signaled;
    case EndCause::timed_out:
      return Outcome::timed_out;
    case EndCause::cancelled:
      return Outcome::cancelled;
  }
  throw ProtocolError("an unknown cause of an end");
}

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

std::string encode_request(const ExecRequest& request, const std::string& work) {
  Exec message;
  if (const auto* line = std::get_if<ShellLine>(&request.command)) {
    message.argv = {"/bin/sh", "-c", line->line};
  } else {
    message.argv = std::get<Argv>(request.command).words;
  }
  if (message.argv.empty()) {
    throw InvalidArgument("a program's argv is empty: it needs the program's name at least");
  }
  for (const std::string& word : message.argv) check_word("an argument", word);
  for (const auto& [name, value] : request.environment) {
    if (name.empty() || name.find('=') != std::string::npos) {
      throw InvalidArgument(
          fmt::format("the environment name '{}' is refused: it is empty or holds '='",
                      escape_for_display(name)));
    }
    check_word("an environment name", name);
    check_word("an environment value", value);
    message.environment.emplace_back(name, value);
  }
  const std::string joined =
      request.directory.starts_with('/') ? request.directory : work + "/" + request.directory;
  message.directory = confine_guest_path(joined, "/");
  if (message.directory.size() >= kMaxPath) {
    throw SandboxFileError("the program's directory is longer than 4095 bytes", ENAMETOOLONG);
  }
  message.stdin_piped = request.stdin_mode != StdinMode::empty;
  if (request.timeout) {
    if (request.timeout->count() <= 0) {
      throw InvalidArgument("a program's timeout is refused: it is not above 0");
    }
    message.timeout_ns = static_cast<std::uint64_t>(request.timeout->count());
  }
  if (request.stdin_mode == StdinMode::forwarded && request.stdin_descriptor < 0) {
    throw InvalidArgument("forwarded input needs an open stdin_descriptor");
  }
  // What the decoder takes, so that the guest is never asked for what it must refuse.
  try {
    std::string payload = encode(message);
    decode_exec(payload);
    return payload;
  } catch (const std::length_error&) {
    refuse_size();
  } catch (const ProtocolError&) {
    refuse_size();
  }
}

AgentProcess::AgentProcess(sys::UniqueFd connection, const std::string& payload,
                           const ExecRequest& request,
                           std::shared_ptr<const AgentSandboxParts> parts,
                           std::shared_ptr<CallAccounting> accounting)
    : parts_(std::move(parts)),
      accounting_(std::move(accounting)),
      on_output_(request.on_output),
      out_(request.capture_bytes),
      err_(request.capture_bytes),
      timeout_(request.timeout),
      connection_(std::move(connection)),
      writer_(connection_.get()),
      reader_(connection_.get()),
      requested_at_(Clock::now()) {
  input_.mode = request.stdin_mode;
  input_.descriptor = request.stdin_descriptor;
  if (accounting_) before_ = accounting_->snapshot();
  put(FrameType::exec, payload);
}

AgentProcess::~AgentProcess() {
  if (owner_.is_current()) abandon();
}

std::unique_ptr<Process> AgentProcess::never_started() { return std::make_unique<NeverStarted>(); }

void AgentProcess::await_start(const CallControl& control) { pump(Goal::started, control); }

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
  if (backstop_at_) backstop_at_ = std::max(*backstop_at_, Clock::now() + parts_->timing.backstop);
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
    return;
  }
  if (type == FrameType::started && state_ == State::begun) {
    expect_empty(frame);
    state_ = State::running;
    // Saturates: a timeout of years has no backstop that anybody lives to see.
    if (timeout_ && *timeout_ < std::chrono::hours(24 * 365)) {
      backstop_at_ = Clock::now() + *timeout_ + parts_->timing.backstop;
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

// -- Ends ----------------------------------------------------------------------------------------

void AgentProcess::finish(const Ended& ended) {
  if (ended.cause == EndCause::timed_out && !timeout_) {
    throw ProtocolError("a timeout that was not asked for");
  }
  if (ended.cause == EndCause::cancelled && !cancel_until_) {
    throw ProtocolError("a cancel that was not asked for");
  }
  if (reader_.next()) throw ProtocolError("a frame after the program's end");
  ExecResult result;
  result.outcome = outcome_of(ended.cause);
  if (ended.cause == EndCause::exited) result.exit_code = ended.exit_code;
  if (ended.cause == EndCause::signaled) result.signal = signal_name(ended.signal);
  if (ended.cause == EndCause::timed_out) result.limit = Limit::time;
  result.wall = nanoseconds(static_cast<std::int64_t>(ended.wall_ns));
  result.cpu = nanoseconds(static_cast<std::int64_t>(ended.cpu_ns));
  result.peak_memory = ended.max_rss;
  result.stopped_known = ended.stopped_known;
  if (accounting_) accounting_->finish(before_, result);
  // A full disk is what failed a program only when it failed.
  const bool failed = result.outcome != Outcome::exited || result.exit_code != 0;
  if (ended.disk_full && failed && !result.limit) result.limit = Limit::disk;
  fill_streams(result);
  result_ = std::move(result);
  state_ = State::ended;
  disconnect();
}

// Without a report. When the counters say that memory ran out, the exec's init was the victim; else
// the guest failed, and no exit status is ever made up.
void AgentProcess::stream_ended() {
  disconnect();
  if (state_ == State::running && accounting_) {
    ExecResult result;
    result.outcome = Outcome::signaled;
    result.signal = signal_name(SIGKILL);
    result.wall = Clock::now() - requested_at_;
    accounting_->finish(before_, result);
    if (result.outcome == Outcome::out_of_memory) {
      fill_streams(result);
      result_ = std::move(result);
      state_ = State::ended;
      return;
    }
  }
  throw_guest_gone();
}

// Keeps what is being thrown as the failure of this and every later wait. Where the provider failed
// under a program that ran, what had come of its output goes with it. A listener may throw the same
// refusals, of another sandbox: then there still is a connection.
void AgentProcess::fail() {
  const bool ran = state_ == State::running;
  const auto keep = [&]<typename R>(const R& refusal) {
    failure_ = std::current_exception();
    const bool provider = !connection_;
    abandon();
    if (!ran || !provider) return;
    failure_ =
        std::make_exception_ptr(Carrying<R, ReceivedOutput>(refusal, {out_.take(), err_.take()}));
  };
  try {
    try {
      throw;
    } catch (const ProtocolError& error) {
      disconnect();
      throw_guest_lied(error.what());
    }
  } catch (const SandboxUnavailable& refusal) {
    keep(refusal);
  } catch (const SandboxTimeout& refusal) {
    keep(refusal);
  } catch (...) {
    failure_ = std::current_exception();
    abandon();
  }
}

void AgentProcess::fail_start(const Failure& failure) {
  const std::string why = error_text(failure.error);
  switch (failure.reason) {
    case FailureReason::path_refused:
      throw SandboxPathRefused("the program's directory leads through a link",
                               "name the directory itself");
    case FailureReason::directory:
      throw SandboxFileError(fmt::format("the program's directory cannot be used: {}", why),
                             failure.error);
    case FailureReason::errno_value:
      throw SandboxFileError(fmt::format("the program cannot be executed: {}", why), failure.error);
    case FailureReason::no_resources:
      write_log(parts_->log, LogLevel::warning,
                fmt::format("sandbox {}: starting a program failed: {} ({})", parts_->info.id,
                            escape_for_display(failure.text), why));
      throw SandboxUnavailable(
          fmt::format("the sandbox could not provide for another program: {}", why));
    case FailureReason::over_cap:
      break;
  }
  throw ProtocolError("a start that failed for a reason of files");
}

void AgentProcess::fill_streams(ExecResult& result) {
  CapturedStream out = out_.take();
  CapturedStream err = err_.take();
  result.stdout = std::move(out.bytes);
  result.stdout_missing_bytes = out.missing_bytes;
  result.stdout_cut_at = out.cut_at;
  result.stderr = std::move(err.bytes);
  result.stderr_missing_bytes = err.missing_bytes;
  result.stderr_cut_at = err.cut_at;
}

void AgentProcess::request_cancel() {
  cancel_until_ = Clock::now() + parts_->timing.cancel_grace;
  put(FrameType::cancel);
}

// Ends the program whoever is at fault, and waits a bounded time for that to be done.
void AgentProcess::abandon() noexcept try {
  on_output_ = nullptr;
  if (connection_) {
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
  writer_.put(wire(type), payload);
  try {
    writer_.flush();
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
