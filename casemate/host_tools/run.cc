#include "casemate/host_tools/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/run_state.h"

namespace casemate {
namespace {

using Clock = std::chrono::steady_clock;

// Arguments may have this much however small answers have to be.
constexpr std::uint64_t kMinRequestBound = 64 * kKiB;
// What one request is made into has this much besides its text, twice: 64 KiB may be 3 MiB of
// numbers.
constexpr std::uint64_t kRoomBesides = 8 * kMiB;
// So that the sum of the two is one.
constexpr std::uint64_t kMaxRoom = std::uint64_t{1} << 50;

std::string seconds_text(std::chrono::nanoseconds time) {
  return fmt::format("{:g}", std::chrono::duration<double>(time).count());
}

}  // namespace

// -- Time and the end ----------------------------------------------------------------------------

void HostToolRun::State::set_alarm_for(Clock::time_point time) {
  if (alarm && *alarm <= time) return;
  alarm = time;
  crew->set_alarm(time);
}

void HostToolRun::State::answer_overdue() {
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
                  quoted_name(call->name), time));
  answer_early(*call, HostToolAnswer::refused(fmt::format(
                          "host tool {} did not answer within {} seconds. What it did by then is "
                          "not known.",
                          quoted_name(call->name), time)));
  run_waiting();
}

void HostToolRun::State::give_up(const CallPointer& call) {
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

bool HostToolRun::State::close() {
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

// -- The run --------------------------------------------------------------------------------------

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
