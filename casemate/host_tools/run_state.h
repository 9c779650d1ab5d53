#pragma once

// One run and its calls, as the parts of `HostToolRun` share them. For host_tools/ alone.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/host_tools/crew.h"
#include "casemate/host_tools/registered.h"
#include "casemate/host_tools/run.h"
#include "casemate/sys/poll.h"

namespace casemate {

// One call, from its arrival to its answer and, where a function does not come back, beyond.
struct HostToolCallState {
  HostToolCallState() = default;
  // Whatever went wrong, a call is answered.
  ~HostToolCallState() {
    try {
      if (answered) answered(HostToolAnswer::refused("the host failed."));
    } catch (...) {
      // Not even that can be said; who waits on it has said what then (`Answered`).
    }
  }
  HostToolCallState(const HostToolCallState&) = delete;
  HostToolCallState& operator=(const HostToolCallState&) = delete;

  std::string name;
  std::uint64_t framing_bytes = 0;
  HostToolRun::Answered answered;
  std::function<void(const HostToolAnswer&)> observed;

  const RegisteredHostTool* tool = nullptr;
  boost::json::object arguments;
  // What `arguments` have of what the host holds.
  HeldShare held;
  // An answer is promised to it.
  bool reserved = false;
  std::optional<sys::SteadyTime> deadline;
  std::stop_source stop;
  // With the run's mutex.
  bool settled = false;
  bool running = false;
};

using CallPointer = std::shared_ptr<HostToolCallState>;

// A tool's name as a program said it, in a sentence.
inline std::string quoted_name(std::string_view name) {
  return fmt::format("'{}'", quote_bounded(name));
}

struct HostToolRun::State : std::enable_shared_from_this<HostToolRun::State> {
  // What happens on threads that may outlive the run holds the registry by this.
  std::shared_ptr<HostToolRegistry> registry;
  std::shared_ptr<HostToolRegistry::State> shared;
  HostToolRunOptions options;
  HostToolCaller caller;
  std::shared_ptr<HeldBytes> held;
  // The run's; valid until it was closed, which is when nothing here uses it any more.
  Crew* crew = nullptr;

  mutable std::mutex mutex;
  HostToolCounters counters;
  bool closed = false;
  std::size_t running = 0;
  std::vector<CallPointer> unanswered;
  std::deque<CallPointer> waiting;
  std::optional<sys::SteadyTime> alarm;

  const TransferLimits& limits() const { return shared->options.response_limits; }

  void log(LogLevel level, std::string_view text) const {
    write_log(options.log, level, fmt::format("host tools: run {}: {}", caller.run_id, text));
  }

  template <typename Act>
  void contained(std::string_view what, Act act) const noexcept {
    try {
      act();
    } catch (const std::exception& error) {
      log(LogLevel::warning, fmt::format("{} failed: {}", what, escape_for_display(error.what())));
    } catch (...) {
      log(LogLevel::warning, fmt::format("{} failed", what));
    }
  }

  // -- Arrival: run_arrival.cc

  void dispatch(std::string_view name, std::string arguments, std::uint64_t framing_bytes,
                Answered answered, HeldShare share);

  void admit(const CallPointer& call, std::string arguments);

  // The host is out of memory, most likely, and the function was not called.
  void fail(const CallPointer& call, std::string_view why);

  // Calls an observer on a thread of the crew that is not busy: it is the host's code, and may wait
  // for others. Once the run is over nobody else needs a thread, and the crew may be gone.
  template <typename Act>
  void observing(Act act) const {
    std::optional<Crew::Busy> busy;
    {
      const std::lock_guard lock(mutex);
      if (!closed) busy.emplace(*crew);
    }
    contained("the observer", act);
  }

  void observe(HostToolCallState& call) const;

  std::optional<HostToolAnswer> refuse_before_arguments(HostToolCallState& call);

  std::optional<HostToolAnswer> read_arguments(HostToolCallState& call, std::string text) const;

  // The promise of one answer, made while there is still room for it.
  std::optional<HostToolAnswer> reserve(HostToolCallState& call);

  static bool exceeds(std::uint64_t there, std::uint64_t bytes, std::uint64_t framing,
                      std::uint64_t cap);

  void give_slot_back(HostToolCallState& call);

  std::optional<HostToolAnswer> refuse_before_function(const HostToolCallState& call) const;

  // -- Running: run_calls.cc

  void enter(const CallPointer& call);

  // It arrived while the run was being closed.
  bool is_unknown_to_run(const CallPointer& call) const;

  // Runs the oldest call that may run on this thread. Others have theirs: whoever waits for this
  // thread must not wait for their calls too.
  void run_waiting();

  // With `mutex` held, and the run not closed.
  void post_run_waiting();

  CallPointer take_runnable();

  // A slot of a tool may come back in another run; its thread must not do this run's work.
  HostToolSlots::Waiter waker();

  void execute(const CallPointer& call);

  HostToolAnswer outcome_of(const HostToolCallState& call) const;

  // The answer as JSON text; absent when the function failed.
  std::optional<std::string> call_function(const HostToolCallState& call) const;

  // Whether the value may be delivered by its own size; the sum is looked at when it is.
  HostToolAnswer accept(const HostToolCallState& call, std::string& text) const;

  // The function came back in time, or it did not and nobody listens.
  void settle(const CallPointer& call, HostToolAnswer result);

  void came_back(const HostToolCallState& call);

  // Where no function was called, or does not come back: on a thread that is not busy.
  void answer_early(HostToolCallState& call, const HostToolAnswer& result) const;

  void answer(HostToolCallState& call, const HostToolAnswer& result) const;

  // -- Time and the end: run.cc

  // With `mutex` held.
  void set_alarm_for(sys::SteadyTime time);

  // One at a time: the alarm rings on for the next, on another thread if this one has to wait.
  void answer_overdue();

  // With `mutex` held: the call is not waited for any more.
  void give_up(const CallPointer& call);

  // False when it had been closed before.
  bool close();
};

}  // namespace casemate
