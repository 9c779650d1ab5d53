// Calls that were admitted: their turn, their function, their answer.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/host_tools/run_state.h"
#include "casemate/sys/deadline.h"

namespace casemate {

void HostToolRun::State::enter(const CallPointer& call) {
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

bool HostToolRun::State::is_unknown_to_run(const CallPointer& call) const {
  const std::lock_guard lock(mutex);
  return !call->settled && closed && std::ranges::find(unanswered, call) == unanswered.end();
}

void HostToolRun::State::run_waiting() {
  // A function may stay away for longer than the run is there.
  const auto self = shared_from_this();
  const CallPointer call = take_runnable();
  if (!call) return;
  execute(call);
  const std::lock_guard lock(mutex);
  if (!closed && !waiting.empty()) post_run_waiting();
}

void HostToolRun::State::post_run_waiting() {
  crew->post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->run_waiting();
  });
}

CallPointer HostToolRun::State::take_runnable() {
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

HostToolSlots::Waiter HostToolRun::State::waker() {
  return [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex);
    if (!self->closed) self->post_run_waiting();
  };
}

void HostToolRun::State::execute(const CallPointer& call) {
  {
    const Crew::Busy busy(*crew);
    contained("answering", [&] { settle(call, outcome_of(*call)); });
  }
  if (call->tool->tool.max_concurrency) call->tool->slots.give_back();
  came_back(*call);
}

HostToolAnswer HostToolRun::State::outcome_of(const HostToolCallState& call) const {
  try {
    std::optional<std::string> text = call_function(call);
    if (text) return accept(call, *text);
  } catch (const std::exception&) {
    // Out of memory for the text or for saying why; the sentence is the same.
  }
  return HostToolAnswer::refused(fmt::format("host tool {} failed.", quoted_name(call.name)));
}

std::optional<std::string> HostToolRun::State::call_function(const HostToolCallState& call) const {
  const auto failed = [&](std::string_view why) {
    log(LogLevel::warning,
        fmt::format("host tool {} failed: {}", quoted_name(call.name), escape_for_display(why)));
    return std::nullopt;
  };
  try {
    boost::json::value value =
        call.tool->tool.function(call.arguments, {caller, call.stop.get_token()});
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

HostToolAnswer HostToolRun::State::accept(const HostToolCallState& call, std::string& text) const {
  const std::uint64_t cap = limits().max_bytes_per_file;
  if (exceeds(0, text.size(), call.framing_bytes, cap)) {
    return HostToolAnswer::refused(
        fmt::format("the answer of host tool {} has {} bytes; one may have {}.",
                    quoted_name(call.name), text.size() + call.framing_bytes, cap));
  }
  return HostToolAnswer::value(std::move(text));
}

void HostToolRun::State::settle(const CallPointer& call, HostToolAnswer result) {
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
                      quoted_name(call->name), result.text().size() + call->framing_bytes, cap,
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

void HostToolRun::State::came_back(const HostToolCallState& call) {
  const std::lock_guard lock(mutex);
  if (call.running) return;
  --shared->abandoned;
  log(LogLevel::info, fmt::format("host tool {} came back after its call had been answered",
                                  quoted_name(call.name)));
}

void HostToolRun::State::answer_early(HostToolCallState& call, const HostToolAnswer& result) const {
  if (call.observed) observing([&] { std::exchange(call.observed, {})(result); });
  answer(call, result);
}

void HostToolRun::State::answer(HostToolCallState& call, const HostToolAnswer& result) const {
  if (call.observed) contained("the observer", [&] { call.observed(result); });
  contained("passing on an answer", [&] { call.answered(result); });
  // What they hold ends with the answer, not with a function that does not come back.
  call.observed = {};
  call.answered = {};
}

}  // namespace casemate
