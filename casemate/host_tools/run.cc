#include "casemate/host_tools/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/crew.h"
#include "casemate/host_tools/registered.h"
#include "casemate/sys/deadline.h"

namespace casemate {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

// Arguments may have this much however small answers have to be.
constexpr std::uint64_t kMinRequestBound = 64 * kKiB;
// What one request is made into has this much besides its text, twice: 64 KiB may be 3 MiB of
// numbers.
constexpr std::uint64_t kRoomBesides = 8 * kMiB;
// So that the sum of the two is one.
constexpr std::uint64_t kMaxRoom = std::uint64_t{1} << 50;

std::string quoted(std::string_view name) { return fmt::format("'{}'", quote_bounded(name)); }

std::string seconds_text(std::chrono::nanoseconds time) {
  return fmt::format("{:g}", std::chrono::duration<double>(time).count());
}

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
  json::object arguments;
  // What `arguments` have of what the host holds.
  HeldShare held;
  // An answer is promised to it.
  bool reserved = false;
  std::optional<Clock::time_point> deadline;
  std::stop_source stop;
  // With the run's mutex.
  bool settled = false;
  bool running = false;
};

using CallPointer = std::shared_ptr<HostToolCallState>;

}  // namespace

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
  std::optional<Clock::time_point> alarm;

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

  // -- Arrival
  // -------------------------------------------------------------------------------------

  void dispatch(std::string_view name, std::string arguments, std::uint64_t framing_bytes,
                Answered answered, HeldShare share) {
    const auto self = shared_from_this();
    const auto call = std::make_shared<HostToolCallState>();
    call->answered = std::move(answered);
    try {
      call->name = name;
      call->framing_bytes = framing_bytes;
      call->held = share ? std::move(share) : HeldShare(held);
      observe(*call);
      admit(call, std::move(arguments));
    } catch (const std::exception& error) {
      fail(call, error.what());
    }
  }

  void admit(const CallPointer& call, std::string arguments) {
    if (auto refusal = refuse_before_arguments(*call)) return answer_early(*call, *refusal);
    if (auto refusal = read_arguments(*call, std::move(arguments)))
      return answer_early(*call, *refusal);
    if (auto refusal = reserve(*call)) return answer_early(*call, *refusal);
    if (auto refusal = refuse_before_function(*call)) {
      give_slot_back(*call);
      return answer_early(*call, *refusal);
    }
    enter(call);
  }

  // The host is out of memory, most likely, and the function was not called.
  void fail(const CallPointer& call, std::string_view why) {
    {
      const std::lock_guard lock(mutex);
      if (call->settled || call->running) return;
      call->settled = true;
      std::erase(unanswered, call);
      std::erase(waiting, call);
      if (std::exchange(call->reserved, false)) --counters.delivered;
    }
    log(LogLevel::error,
        fmt::format("host tool {}: {}", quoted(call->name), escape_for_display(why)));
    answer_early(*call, HostToolAnswer::refused(fmt::format(
                            "host tool {} was not called: the host has no room for it now.",
                            quoted(call->name))));
  }

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

  void observe(HostToolCallState& call) const {
    const HostToolObserver& observer = shared->options.observer;
    if (!observer) return;
    observing([&] { call.observed = observer({caller, call.name}); });
  }

  std::optional<HostToolAnswer> refuse_before_arguments(HostToolCallState& call) {
    const std::uint64_t cap = shared->options.max_host_tool_calls_per_run;
    {
      const std::lock_guard lock(mutex);
      if (closed) return HostToolAnswer::refused("the run is over.");
      if (++counters.dispatched > cap) {
        return HostToolAnswer::refused(fmt::format(
            "the {} host tool calls of this run are used up; finish with what there is.", cap));
      }
    }
    call.tool = registry->resolve(call.name);
    if (call.tool == nullptr) {
      return HostToolAnswer::refused(fmt::format("there is no host tool {}.", quoted(call.name)));
    }
    const auto& declaration = call.tool->tool.declaration;
    if (shared->options.require_declared == RequireDeclared::yes && !declaration) {
      return HostToolAnswer::refused(
          fmt::format("host tool {} has no declaration and is not served.", quoted(call.name)));
    }
    if (declaration && declaration->identity.get() == Identity::user) {
      return HostToolAnswer::refused(fmt::format(
          "host tool {} acts in a user's name, which is not served: that takes a token minted for "
          "this run, a check that the token's audience lies within the run's egress, and an "
          "environment that only this execution can read.",
          quoted(call.name)));
    }
    return std::nullopt;
  }

  std::optional<HostToolAnswer> read_arguments(HostToolCallState& call, std::string text) const {
    // The text is there until its strings stand in the value.
    const std::uint64_t parsed = text.size() + kJsonValueBytes * json_values_at_most(text);
    if (!call.held.resize(text.size() + parsed)) {
      return HostToolAnswer::refused(
          fmt::format("the arguments of host tool {} take {} bytes; of the {} that the host holds "
                      "for the calls of a run at a time, {} are left.",
                      quoted(call.name), text.size() + parsed, held->max(), held->left()));
    }
    json::value value;
    try {
      value = parse_json(text);
    } catch (const JsonError& error) {
      return HostToolAnswer::refused(fmt::format("the arguments of host tool {}: {}.",
                                                 quoted(call.name), quote_bounded(error.what())));
    }
    if (value.is_object()) {
      call.arguments = std::move(value.get_object());
    } else if (!value.is_null()) {
      return HostToolAnswer::refused(
          fmt::format("the arguments of host tool {} must be an object.", quoted(call.name)));
    }
    text = {};
    call.held.resize(parsed);
    return std::nullopt;
  }

  // The promise of one answer, made while there is still room for it.
  std::optional<HostToolAnswer> reserve(HostToolCallState& call) {
    const TransferLimits& caps = limits();
    const std::lock_guard lock(mutex);
    if (counters.delivered + 1 > caps.max_files) {
      return HostToolAnswer::refused(fmt::format(
          "the {} answers of this run are used up; finish with what there is.", caps.max_files));
    }
    if (exceeds(counters.delivered_bytes, 1, call.framing_bytes, caps.max_total_bytes)) {
      return HostToolAnswer::refused(
          fmt::format("the {} bytes that the answers of this run may have are used up; finish with "
                      "what there is.",
                      caps.max_total_bytes));
    }
    if (exceeds(0, 1, call.framing_bytes, caps.max_bytes_per_file)) {
      log(LogLevel::warning, fmt::format("no answer fits in {} bytes with {} bytes of framing",
                                         caps.max_bytes_per_file, call.framing_bytes));
      return HostToolAnswer::refused(fmt::format(
          "no answer fits in the {} bytes that one may have here.", caps.max_bytes_per_file));
    }
    ++counters.delivered;
    call.reserved = true;
    return std::nullopt;
  }

  static bool exceeds(std::uint64_t there, std::uint64_t bytes, std::uint64_t framing,
                      std::uint64_t cap) {
    return there > cap || bytes > cap - there || framing > cap - there - bytes;
  }

  void give_slot_back(HostToolCallState& call) {
    const std::lock_guard lock(mutex);
    if (std::exchange(call.reserved, false)) --counters.delivered;
  }

  std::optional<HostToolAnswer> refuse_before_function(const HostToolCallState& call) const {
    if (shared->abandoned >= kMaxAbandonedCalls) {
      log(LogLevel::error, fmt::format("{} functions have not come back; no more are called",
                                       shared->abandoned.load()));
      return HostToolAnswer::refused("the host is busy with calls that do not end; go on without.");
    }
    if (const auto mismatch = call.tool->schema.check(call.arguments)) {
      return HostToolAnswer::refused(fmt::format("host tool {} was not called: {}",
                                                 quoted(call.name),
                                                 quote_bounded(mismatch->sentence("argument"))));
    }
    return std::nullopt;
  }

  // -- Running
  // -------------------------------------------------------------------------------------

  void enter(const CallPointer& call) {
    {
      const std::lock_guard lock(mutex);
      if (!closed) {
        unanswered.push_back(call);
        waiting.push_back(call);
        if (call->tool->tool.timeout) {
          call->deadline = sys::deadline_after(*call->tool->tool.timeout);
          set_alarm_for(*call->deadline);
        }
      }
    }
    run_waiting();
    if (is_unknown_to_run(call)) {
      give_slot_back(*call);
      answer_early(*call, HostToolAnswer::refused("the run is over."));
    }
  }

  // It arrived while the run was being closed.
  bool is_unknown_to_run(const CallPointer& call) const {
    const std::lock_guard lock(mutex);
    return !call->settled && closed && std::ranges::find(unanswered, call) == unanswered.end();
  }

  // Runs the oldest call that may run on this thread. Others have theirs: whoever waits for this
  // thread must not wait for their calls too.
  void run_waiting() {
    // A function may stay away for longer than the run is there.
    const auto self = shared_from_this();
    const CallPointer call = take_runnable();
    if (!call) return;
    execute(call);
    const std::lock_guard lock(mutex);
    if (!closed && !waiting.empty()) post_run_waiting();
  }

  // With `mutex` held, and the run not closed.
  void post_run_waiting() {
    crew->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->run_waiting();
    });
  }

  CallPointer take_runnable() {
    const std::lock_guard lock(mutex);
    if (closed) return nullptr;
    for (auto each = waiting.begin(); each != waiting.end() && running < options.max_parallel_calls;
         ++each) {
      const CallPointer call = *each;
      const auto limit = call->tool->tool.max_concurrency;
      if (limit && !call->tool->slots.take(*limit, this, waker())) continue;
      waiting.erase(each);
      call->running = true;
      ++running;
      if (!waiting.empty() && running < options.max_parallel_calls) post_run_waiting();
      return call;
    }
    return nullptr;
  }

  // A slot of a tool may come back in another run; its thread must not do this run's work.
  HostToolSlots::Waiter waker() {
    return [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      const std::lock_guard lock(self->mutex);
      if (!self->closed) self->post_run_waiting();
    };
  }

  void execute(const CallPointer& call) {
    {
      const Crew::Busy busy(*crew);
      contained("answering", [&] { settle(call, outcome_of(*call)); });
    }
    if (call->tool->tool.max_concurrency) call->tool->slots.give_back();
    came_back(*call);
  }

  HostToolAnswer outcome_of(const HostToolCallState& call) const {
    try {
      std::optional<std::string> text = call_function(call);
      if (text) return accept(call, *text);
    } catch (const std::exception&) {
      // Out of memory for the text or for saying why; the sentence is the same.
    }
    return HostToolAnswer::refused(fmt::format("host tool {} failed.", quoted(call.name)));
  }

  // The answer as JSON text; absent when the function failed.
  std::optional<std::string> call_function(const HostToolCallState& call) const {
    const auto failed = [&](std::string_view why) {
      log(LogLevel::warning,
          fmt::format("host tool {} failed: {}", quoted(call.name), escape_for_display(why)));
      return std::nullopt;
    };
    try {
      json::value value = call.tool->tool.function(call.arguments, {caller, call.stop.get_token()});
      try {
        return serialise_json(value);
      } catch (const JsonError&) {
        discard_json(std::move(value));
        throw;
      }
    } catch (const std::exception& error) {
      return failed(error.what());
    } catch (...) {
      return failed("an exception of no known kind");
    }
  }

  // Whether the value may be delivered by its own size; the sum is looked at when it is.
  HostToolAnswer accept(const HostToolCallState& call, std::string& text) const {
    const std::uint64_t cap = limits().max_bytes_per_file;
    if (exceeds(0, text.size(), call.framing_bytes, cap)) {
      return HostToolAnswer::refused(
          fmt::format("the answer of host tool {} has {} bytes; one may have {}.",
                      quoted(call.name), text.size() + call.framing_bytes, cap));
    }
    return HostToolAnswer::value(std::move(text));
  }

  // The function came back in time, or it did not and nobody listens.
  void settle(const CallPointer& call, HostToolAnswer result) {
    {
      const std::lock_guard lock(mutex);
      if (call->settled) return;
      call->settled = true;
      std::erase(unanswered, call);
      --running;
      const std::uint64_t cap = limits().max_total_bytes;
      if (result.ok() &&
          exceeds(counters.delivered_bytes, result.text().size(), call->framing_bytes, cap)) {
        result = HostToolAnswer::refused(
            fmt::format("the answer of host tool {} has {} bytes; of the {} that the answers of "
                        "this run may have, {} are left.",
                        quoted(call->name), result.text().size() + call->framing_bytes, cap,
                        cap - counters.delivered_bytes));
      }
      if (result.ok()) {
        counters.delivered_bytes += result.text().size() + call->framing_bytes;
      } else {
        --counters.delivered;
      }
      call->reserved = false;
    }
    answer(*call, result);
  }

  void came_back(const HostToolCallState& call) {
    const std::lock_guard lock(mutex);
    if (call.running) return;
    --shared->abandoned;
    log(LogLevel::info,
        fmt::format("host tool {} came back after its call had been answered", quoted(call.name)));
  }

  // Where no function was called, or does not come back: on a thread that is not busy.
  void answer_early(HostToolCallState& call, const HostToolAnswer& result) const {
    if (call.observed) observing([&] { std::exchange(call.observed, {})(result); });
    answer(call, result);
  }

  void answer(HostToolCallState& call, const HostToolAnswer& result) const {
    if (call.observed) contained("the observer", [&] { call.observed(result); });
    contained("passing on an answer", [&] { call.answered(result); });
    // What they hold ends with the answer, not with a function that does not come back.
    call.observed = {};
    call.answered = {};
  }

  // -- Time and the end
  // ----------------------------------------------------------------------------

  // With `mutex` held.
  void set_alarm_for(Clock::time_point time) {
    if (alarm && *alarm <= time) return;
    alarm = time;
    crew->set_alarm(time);
  }

  // One at a time: the alarm rings on for the next, on another thread if this one has to wait.
  void answer_overdue() {
    const auto now = Clock::now();
    CallPointer call;
    {
      const std::lock_guard lock(mutex);
      if (closed) return;
      alarm.reset();
      const auto overdue = std::ranges::find_if(unanswered, [&](const CallPointer& each) {
        return each->deadline && *each->deadline <= now;
      });
      if (overdue != unanswered.end()) {
        call = *overdue;
        give_up(call);
      }
      for (const CallPointer& each : unanswered) {
        if (each->deadline) set_alarm_for(*each->deadline);
      }
    }
    if (!call) return;
    call->stop.request_stop();
    const std::string time = seconds_text(*call->tool->tool.timeout);
    log(LogLevel::warning,
        fmt::format("host tool {} has not answered within {} s and was told to stop",
                    quoted(call->name), time));
    answer_early(*call, HostToolAnswer::refused(fmt::format(
                            "host tool {} did not answer within {} seconds. What it did by then is "
                            "not known.",
                            quoted(call->name), time)));
    run_waiting();
  }

  // With `mutex` held: the call is not waited for any more.
  void give_up(const CallPointer& call) {
    call->settled = true;
    std::erase(unanswered, call);
    --counters.delivered;
    call->reserved = false;
    if (call->running) {
      call->running = false;
      --running;
      ++shared->abandoned;
    } else {
      std::erase(waiting, call);
    }
  }

  // False when it had been closed before.
  bool close() {
    std::vector<CallPointer> cut_off;
    {
      const std::lock_guard lock(mutex);
      if (closed) return false;
      closed = true;
      cut_off = unanswered;
      for (const CallPointer& call : cut_off) give_up(call);
    }
    for (const CallPointer& call : cut_off) {
      call->stop.request_stop();
      answer(*call, HostToolAnswer::refused("the run is over."));
    }
    return true;
  }
};

HostToolRun::HostToolRun(std::shared_ptr<HostToolRegistry> registry, HostToolRunOptions options)
    : state_(std::make_shared<State>()) {
  if (!registry) throw InvalidArgument("a run of host tools without a registry");
  if (options.max_parallel_calls == 0) throw InvalidArgument("max_parallel_calls is 0");
  registry->aggregate();
  state_->shared = registry->state_;
  state_->registry = std::move(registry);
  state_->caller = {options.id.empty() ? random_hex(6) : std::move(options.id), options.key};
  state_->options = std::move(options);
  state_->held = std::make_shared<HeldBytes>(
      std::max(response_limits().max_total_bytes,
               kRoomBesides + 2 * std::min(max_request_bytes(), kMaxRoom)));
  crew_ = std::make_unique<Crew>(state_->options.log);
  state_->crew = crew_.get();
  crew_->on_alarm([weak = std::weak_ptr(state_)] {
    if (const auto state = weak.lock()) state->answer_overdue();
  });
}

HostToolRun::~HostToolRun() { close(); }

const std::string& HostToolRun::id() const { return state_->caller.run_id; }

HostToolCounters HostToolRun::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

const TransferLimits& HostToolRun::response_limits() const { return state_->limits(); }

std::uint64_t HostToolRun::max_request_bytes() const {
  return std::max(response_limits().max_bytes_per_file, kMinRequestBound);
}

const std::shared_ptr<HeldBytes>& HostToolRun::held_bytes() const { return state_->held; }

void HostToolRun::dispatch(std::string_view name, std::string arguments,
                           std::uint64_t framing_bytes, Answered answered, HeldShare held) {
  state_->dispatch(name, std::move(arguments), framing_bytes, std::move(answered), std::move(held));
}

HostToolAnswer HostToolRun::dispatch(std::string_view name, std::string_view arguments,
                                     std::uint64_t framing_bytes) {
  // Held by the job alone, so that a crew that drops it unrun breaks it.
  auto promise = std::make_shared<std::promise<HostToolAnswer>>();
  auto future = promise->get_future();
  crew_->post([state = state_, promise = std::move(promise), framing_bytes,
               name = std::string(name), arguments = std::string(arguments)]() mutable {
    state->dispatch(name, std::move(arguments), framing_bytes,
                    [promise](const HostToolAnswer& answer) { promise->set_value(answer); }, {});
  });
  try {
    return future.get();
  } catch (const std::future_error&) {
    return HostToolAnswer::refused("the run is over.");
  }
}

void HostToolRun::close() noexcept {
  if (!owner_.is_current()) return;
  bool first = true;
  state_->contained("closing", [&] { first = state_->close(); });
  if (!first) return;
  if (const std::size_t left = crew_->stop(state_->options.close_patience); left > 0) {
    state_->contained("closing", [&] {
      state_->log(
          LogLevel::warning,
          fmt::format("{} functions were told to stop, have not, and are left to themselves",
                      left));
    });
  }
}

Crew& HostToolRun::crew() { return *crew_; }

HostToolSurface HostToolRun::surface() const { return state_->registry->surface(); }

}  // namespace casemate
