// How a program's run ends: the guest's report, the lack of one, and what becomes of a failure.

#include <fmt/format.h>

#include <csignal>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent_process.h"

namespace casemate::guest {
namespace {

using std::chrono::nanoseconds;
using Clock = sys::SteadyTime::clock;

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

}  // namespace

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
  if (ended.memory_ran_out) {
    // Where the program itself lives on or ended by its own, its status stands, with a note.
    if (result.outcome == Outcome::signaled && result.signal == signal_name(SIGKILL)) {
      result.outcome = Outcome::out_of_memory;
      result.signal.reset();
    }
    if (!result.limit) result.limit = Limit::memory;
  }
  if (ended.forks_refused && !result.limit) result.limit = Limit::pids;
  // A full disk is what failed a program only when it failed.
  const bool failed = result.outcome != Outcome::exited || result.exit_code != 0;
  // Likewise where no counter says that a fork was refused.
  if (ended.processes_ran_out && failed && !result.limit) result.limit = Limit::pids;
  if (ended.disk_full && failed && !result.limit) {
    result.limit = Limit::disk;
    result.files_ran_out = ended.files_ran_out;
  }
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
  if (*call_closed_) {
    throw SandboxUnavailable("the call was closed while its program ran; the sandbox lives",
                             "wait for the programs of a call before closing it");
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
                             failure.error, "name a directory that is there");
    case FailureReason::errno_value:
      throw SandboxFileError(
          fmt::format("the program cannot be executed: {}", why), failure.error,
          "name an executable file of the sandbox's by its path, or one that is on its PATH");
    case FailureReason::no_resources:
      // What is held may end before its time, and then another takes its place.
      write_log(parts_->log, held_ && !begun_ ? LogLevel::debug : LogLevel::warning,
                fmt::format("sandbox {}: starting a program failed: {} ({})", parts_->info.id,
                            escape_for_display(failure.text), why));
      throw SandboxUnavailable(
          fmt::format("the sandbox could not provide for another program: {}", why),
          no_resources_hint(failure.error));
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

}  // namespace casemate::guest
