#include "casemate/host_tools/over_exec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>
#include <variant>

#include "casemate/base/utf8.h"
#include "casemate/core/capture.h"
#include "casemate/core/errors.h"
#include "casemate/core/limits.h"
#include "casemate/host_tools/crew.h"
#include "casemate/host_tools/over_exec_guest.h"
#include "casemate/host_tools/over_exec_request.h"

namespace casemate {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// What the launcher says is one line; the rest is a complaint.
constexpr std::uint64_t kLauncherCaptureBytes = 16 * 1024;

constexpr const char* kDidNotStart = "the program was not started: its launcher failed";

void check_options(const OverExecOptions& options) {
  const auto check = [](std::string_view name, std::chrono::nanoseconds value) {
    constexpr std::chrono::seconds kMost{kMaxTimeoutSeconds};
    if (value > std::chrono::nanoseconds(0) && value <= kMost) return;
    throw InvalidArgument(fmt::format("{} is {} ns; it must be above 0 and at most {} s", name,
                                      value.count(), kMost.count()),
                          "state a time within that range");
  };
  check("timeout", options.timeout);
  check("poll_interval", options.poll_interval);
}

bool announces_session(std::string_view output) {
  while (!output.empty()) {
    const std::size_t end = output.find('\n');
    if (output.substr(0, end) == kOverExecSessionLine) return true;
    if (end == std::string_view::npos) return false;
    output.remove_prefix(end + 1);
  }
  return false;
}

// The guest's word for how its program ended; 1 for one that makes no sense.
int exit_code_of(const Arrival& mark) {
  std::string_view text = mark.bytes;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  const bool sound = mark.state == Arrival::State::here && error == std::errc() &&
                     end == text.data() + text.size() && code >= 0 && code <= 255;
  return sound ? code : 1;
}

class Supervision {
 public:
  Supervision(const ExecAndFiles& guest, HostToolRun& run, const GuestRunLayout& layout,
              const OverExecOptions& options, const CallControl& control)
      : guest_(guest), run_(run), layout_(layout), options_(options), control_(control) {}

  OverExecResult operator()() {
    try {
      end_ = supervise();
      if (end_ == End::exited) {
        finish();
      } else if (end_ != End::launcher_failed) {
        cut_short();
      }
    } catch (...) {
      if (!look_for_mark_again()) stop(StopSignal::absent);
      clean_up();
      throw;
    }
    clean_up();
    result_.result.wall = Clock::now() - started_;
    return std::move(result_);
  }

 private:
  enum class End : std::uint8_t { exited, launcher_failed, timed_out, cancelled };

  // -- Bounds
  // --------------------------------------------------------------------------------------

  CallControl until(Time time) const {
    CallControl bounded = control_;
    bounded.deadline = control_.deadline ? std::min(*control_.deadline, time) : time;
    return bounded;
  }
  CallControl in_time() const { return until(deadline_); }

  // For what is done after the end was decided; the caller's own bounds are over then.
  static CallControl afterwards(Time time) { return {.deadline = time}; }

  // What `act` does, or the end that came in between. A provider that is silent by the caller's own
  // bound is the caller's to hear of.
  template <typename Act>
  std::optional<End> interrupted(Act act) const {
    try {
      act();
      return std::nullopt;
    } catch (const SandboxTimeout&) {
      if (Clock::now() < deadline_) throw;
      return End::timed_out;
    } catch (const SandboxCancelled&) {
      if (!control_.stop.stop_requested()) throw;
      return End::cancelled;
    }
  }

  // -- The course of a run
  // -------------------------------------------------------------------------

  End supervise() {
    if (const auto end = interrupted([&] { write_launcher(); })) return *end;
    if (const auto end = launch()) return *end;
    std::optional<End> end;
    while (!end) {
      const auto cut = interrupted([&] { end = look(); });
      if (cut) return *cut;
    }
    return *end;
  }

  void write_launcher() {
    guest_.files.write_file(layout_.launcher(), launcher_, layout_.run_directory(), in_time());
  }

  std::optional<End> launch() {
    ExecRequest request;
    Argv argv{{"sh", layout_.launcher()}};
    argv.words.insert(argv.words.end(), options_.arguments.begin(), options_.arguments.end());
    request.command = std::move(argv);
    request.environment = options_.environment;
    request.directory = layout_.run_directory();
    request.timeout = std::max(deadline_ - Clock::now(), Clock::duration(1));
    request.capture_bytes = kLauncherCaptureBytes;
    ExecResult launched;
    may_run_ = true;
    // The program's time bounds the launcher; the provider gets a little more to say so.
    const auto end = interrupted(
        [&] { launched = guest_.exec(request, until(deadline_ + kOverExecAnswerGrace)); });
    session_ = announces_session(launched.stdout) ? SessionAnnounced::yes : SessionAnnounced::no;
    if (end) return end;
    if (launched.outcome == Outcome::timed_out) return End::timed_out;
    if (launched.outcome == Outcome::cancelled) return End::cancelled;
    if (launched.outcome == Outcome::exited && launched.exit_code == 0) {
      launched_ = true;
      return std::nullopt;
    }
    // What it left running, if anything, is not to stay.
    if (launched.outcome != Outcome::exited) stop(StopSignal::absent);
    if (launched.stderr.empty()) result_.notes.emplace_back(kDidNotStart);
    result_.result = std::move(launched);
    return End::launcher_failed;
  }

  // Looks once at everything, and sleeps when there was nothing.
  std::optional<End> look() {
    if (const auto end = over()) return end;
    if (find_mark(in_time())) return End::exited;
    bool served = false;
    if (const auto end = serve_next(served); end || served) return end;
    std::unique_lock lock(sleep_);
    std::condition_variable_any().wait_until(
        lock, control_.stop, std::min(Clock::now() + options_.poll_interval, deadline_),
        [] { return false; });
    return std::nullopt;
  }

  std::optional<End> over() const {
    if (control_.stop.stop_requested()) return End::cancelled;
    if (Clock::now() >= deadline_) return End::timed_out;
    return std::nullopt;
  }

  bool find_mark(const CallControl& control) {
    Arrival mark;
    no_mark_ = spoiled([&] {
      mark = read_arrival(guest_.files, layout_.exit_code(), layout_.run_directory(),
                          kOverExecMarkBytes, control);
    });
    if (mark.state == Arrival::State::not_yet) return false;
    result_.result.outcome = Outcome::exited;
    result_.result.exit_code = exit_code_of(mark);
    return true;
  }

  // -- Calls
  // ---------------------------------------------------------------------------------------

  // `served` when a request was there.
  std::optional<End> serve_next(bool& served) {
    // The registry's cap, and the refusal that says that it was reached.
    if (handled_ > surface_.max_calls) {
      if (!std::exchange(said_enough_, true)) {
        log(LogLevel::warning, fmt::format("{} requests were read; no more are", handled_));
      }
      return std::nullopt;
    }
    const std::uint64_t max_bytes = surface_.response_limits.max_bytes_per_file;
    const std::uint64_t number = handled_ + 1;
    Arrival request;
    const auto unreadable = spoiled([&] {
      request = read_arrival(guest_.files, layout_.request(number), layout_.run_directory(),
                             max_bytes, in_time());
    });
    if (!unreadable && request.state == Arrival::State::not_yet) return std::nullopt;
    if (const auto end = over()) return end;
    served = true;
    handled_ = number;
    if (unreadable) lose_call("read", *unreadable);
    OverExecMessage message = unreadable ? HostToolAnswer::refused("the request cannot be read.")
                              : request.state == Arrival::State::here
                                  ? read_over_exec_request(request.bytes)
                                  : over_exec_request_too_large(max_bytes);
    if (std::holds_alternative<OverExecAbandoned>(message)) return std::nullopt;
    if (const auto* call = std::get_if<OverExecRequest>(&message)) {
      std::optional<HostToolAnswer> answer;
      if (const auto end = dispatch(*call, answer)) return end;
      message = *std::move(answer);
    }
    const std::string text = over_exec_response(std::get<HostToolAnswer>(message));
    const auto unwritable = spoiled([&] {
      guest_.files.write_file(layout_.response(number), text, layout_.run_directory(),
                              until(std::max(deadline_, Clock::now() + kOverExecAnswerGrace)));
    });
    if (unwritable) lose_call("answered", *unwritable);
    return std::nullopt;
  }

  // The program owns the files through which it calls: what it makes of them may cost it its calls,
  // never the run. Said once to the reader, and always to the log.
  void lose_call(std::string_view what, std::string_view why) {
    if (!std::exchange(lost_calls_, true)) {
      note(fmt::format("the host tool call {} could not be {}: {}", handled_, what, why));
    }
    log(LogLevel::warning,
        fmt::format("call {} could not be {}: {}", handled_, what, escape_for_display(why)));
  }

  // Does `act` on files that the program can make anything of (links, directories, unreadable).
  // Returns what the guest's files refused; what the provider fails with passes through.
  template <typename Act>
  static std::optional<std::string> spoiled(Act act) {
    try {
      act();
      return std::nullopt;
    } catch (const SandboxFileError& error) {
      return error.message();
    } catch (const SandboxPathRefused& error) {
      return error.message();
    }
  }

  // Sets `answer`, unless the run's end came first.
  std::optional<End> dispatch(const OverExecRequest& call, std::optional<HostToolAnswer>& answer) {
    // Held by the job and what it begins, so that a run that was closed breaks it.
    auto promise = std::make_shared<std::promise<HostToolAnswer>>();
    std::future<HostToolAnswer> future = promise->get_future();
    // A name that is no string is no tool's, and counts like any other.
    run_.crew().post([&run = run_, name = call.has_name ? call.name : std::string(),
                      arguments = call.arguments, promise = std::move(promise)]() mutable {
      run.dispatch(name, std::move(arguments), kOverExecFramingBytes,
                   [promise](const HostToolAnswer& result) { promise->set_value(result); });
    });
    while (future.wait_until(std::min(Clock::now() + options_.poll_interval, deadline_)) !=
           std::future_status::ready) {
      if (const auto end = over()) return end;
      if (find_mark(in_time())) return End::exited;
    }
    try {
      answer = future.get();
    } catch (const std::future_error&) {
      answer = HostToolAnswer::refused("the run is over.");
    }
    if (!call.has_name && run_.counters().dispatched <= surface_.max_calls) {
      answer = HostToolAnswer::refused(
          fmt::format("the name of a host tool is a string, not {}.", call.name));
    }
    return std::nullopt;
  }

  // -- The end
  // -------------------------------------------------------------------------------------

  // Without throwing: whether the guest says that it is over.
  bool look_for_mark_again() noexcept {
    if (!may_run_) return false;
    try {
      return find_mark(afterwards(Clock::now() + kOverExecLastLookGrace));
    } catch (...) {
      return false;
    }
  }

  void finish() {
    const Time last_look = std::max(deadline_, Clock::now() + kOverExecLastLookGrace);
    if (!interrupted([&] { read_output(until(last_look)); })) return;
    result_.result.exit_code.reset();
    result_.result.outcome = Outcome::cancelled;
  }

  void cut_short() {
    ExecResult& result = result_.result;
    if (!may_run_) {
      result_.stop = ProgramStop{.signal = StopSignal::absent};
      result.stopped_known = true;
    } else {
      const Time last_look = Clock::now() + kOverExecLastLookGrace;
      bool exited = false;
      try {
        exited = find_mark(afterwards(last_look));
        read_output(afterwards(last_look));
      } catch (const std::exception& error) {
        note(fmt::format("what the program printed could not be read: {}", error.what()));
      }
      if (exited && end_ == End::timed_out) return;
      if (no_mark_) {
        note(fmt::format("whether the program had ended could not be seen: {}", *no_mark_));
      }
      if (!exited) stop(launched_ ? StopSignal::unrecorded : StopSignal::unknown);
    }
    result.exit_code.reset();
    result.outcome = end_ == End::timed_out ? Outcome::timed_out : Outcome::cancelled;
    if (end_ == End::timed_out) result.limit = Limit::time;
  }

  // `without_pid` is what it means that the guest has no number written down.
  void stop(StopSignal without_pid) noexcept {
    if (!may_run_) return;
    static_assert(kOverExecNumbersGrace == kOverExecSignalGrace);
    ProgramStop stopped = stop_guest_program(guest_, layout_, session_, kOverExecNumbersGrace);
    if (stopped.signal == StopSignal::absent) stopped.signal = without_pid;
    log(LogLevel::info, fmt::format("stopping the program: signal {}, reached {}",
                                    to_string(stopped.signal), to_string(stopped.reach)));
    result_.stop = stopped;
  }

  void clean_up() noexcept {
    const auto failed = remove_guest_tree(guest_, layout_.transport_directory(),
                                          Clock::now() + kOverExecCleanupGrace);
    if (failed) {
      log(LogLevel::warning, fmt::format("the transport's files could not be removed: {}",
                                         escape_for_display(*failed)));
    }
  }

  // -- Streams
  // -------------------------------------------------------------------------------------

  void read_output(const CallControl& control) {
    ExecResult& result = result_.result;
    std::uint64_t left = surface_.response_limits.max_total_bytes;
    // What went wrong is said in the second; it gets the room first.
    read_stream("standard error", layout_.standard_error(), control, left, result.stderr,
                result.stderr_missing_bytes, result.stderr_cut_at);
    read_stream("standard output", layout_.standard_output(), control, left, result.stdout,
                result.stdout_missing_bytes, result.stdout_cut_at);
  }

  void read_stream(std::string_view name, const std::string& path, const CallControl& control,
                   std::uint64_t& left, std::string& bytes, std::uint64_t& missing,
                   std::uint64_t& cut_at) {
    Arrival file;
    try {
      const auto unreadable = spoiled(
          [&] { file = read_arrival(guest_.files, path, layout_.run_directory(), left, control); });
      if (unreadable) {
        return note(fmt::format("the {} of the program could not be read: {}", name, *unreadable));
      }
    } catch (const SandboxTimeout&) {
      return note(fmt::format("the {} of the program could not be read in time", name));
    }
    if (file.state == Arrival::State::not_yet && !file.size && end_ == End::exited) {
      return note(
          fmt::format("the {} of the program is lost: its file is not there any more", name));
    }
    if (file.state == Arrival::State::too_large) {
      missing = file.size.value_or(left + 1);
      return note(fmt::format(
          "the {} of the program is left out: both streams together may have {} bytes here. Have "
          "the program write a file instead",
          name, surface_.response_limits.max_total_bytes));
    }
    left -= file.bytes.size();
    StreamCapture capture(options_.capture_bytes);
    capture.append(file.bytes);
    CapturedStream kept = capture.take();
    bytes = std::move(kept.bytes);
    missing = kept.missing_bytes;
    cut_at = kept.cut_at;
  }

  void note(std::string text) { result_.notes.push_back(escape_for_display(text)); }

  void log(LogLevel level, std::string_view text) const noexcept {
    try {
      write_log(options_.log, level, fmt::format("host tools: run {}: {}", run_.id(), text));
    } catch (const std::exception&) {
      // Out of memory: the line is lost.
    }
  }

  const ExecAndFiles& guest_;
  HostToolRun& run_;
  const GuestRunLayout& layout_;
  const OverExecOptions& options_;
  const CallControl& control_;
  const std::string launcher_ = over_exec_launcher(layout_, options_.interpreter);
  const HostToolSurface surface_ = run_.surface();
  const Time started_ = Clock::now();
  const Time deadline_ = started_ + options_.timeout;

  OverExecResult result_;
  End end_ = End::exited;
  // The launcher was asked to start the program; it said that it has.
  bool may_run_ = false;
  bool launched_ = false;
  SessionAnnounced session_ = SessionAnnounced::no;
  // Requests that were read, the abandoned among them.
  std::uint64_t handled_ = 0;
  bool said_enough_ = false;
  bool lost_calls_ = false;
  // Why the guest's word for its end could not be looked for, the last time that it was.
  std::optional<std::string> no_mark_;
  std::mutex sleep_;
};

}  // namespace

OverExecResult host_tool_calls_over_exec(const ExecAndFiles& guest, HostToolRun& run,
                                         const GuestRunLayout& layout,
                                         const OverExecOptions& options,
                                         const CallControl& control) {
  check_options(options);
  return Supervision(guest, run, layout, options, control)();
}

bool reclaim_run(const ExecAndFiles& guest, const GuestRunLayout& layout,
                 std::chrono::nanoseconds timeout, const CallControl& control) {
  if (timeout <= std::chrono::nanoseconds(0) ||
      timeout > std::chrono::seconds(kMaxTimeoutSeconds)) {
    throw InvalidArgument(fmt::format("timeout is {} ns; it must be above 0 and at most {} s",
                                      timeout.count(), kMaxTimeoutSeconds),
                          "state a time within that range");
  }
  return !remove_guest_tree(guest, layout.run_directory(), Clock::now() + timeout, control);
}

}  // namespace casemate
