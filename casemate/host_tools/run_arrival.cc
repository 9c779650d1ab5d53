// A call's arrival: what it is refused for before its function is called.

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

namespace casemate {

void HostToolRun::State::dispatch(std::string_view name, std::string arguments,
                                  std::uint64_t framing_bytes, Answered answered, HeldShare share) {
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

void HostToolRun::State::admit(const CallPointer& call, std::string arguments) {
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

void HostToolRun::State::fail(const CallPointer& call, std::string_view why) {
  {
    const std::lock_guard lock(mutex);
    if (call->settled || call->running) return;
    call->settled = true;
    std::erase(unanswered, call);
    std::erase(waiting, call);
    if (std::exchange(call->reserved, false)) --counters.delivered;
  }
  log(LogLevel::error,
      fmt::format("host tool {}: {}", quoted_name(call->name), escape_for_display(why)));
  answer_early(*call, HostToolAnswer::refused(fmt::format(
                          "host tool {} was not called: the host has no room for it now.",
                          quoted_name(call->name))));
}

void HostToolRun::State::observe(HostToolCallState& call) const {
  const HostToolObserver& observer = shared->options.observer;
  if (!observer) return;
  observing([&] { call.observed = observer({caller, call.name}); });
}

std::optional<HostToolAnswer> HostToolRun::State::refuse_before_arguments(HostToolCallState& call) {
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
    return HostToolAnswer::refused(
        fmt::format("there is no host tool {}.", quoted_name(call.name)));
  }
  const auto& declaration = call.tool->tool.declaration;
  if (shared->options.require_declared == RequireDeclared::yes && !declaration) {
    return HostToolAnswer::refused(
        fmt::format("host tool {} has no declaration and is not served.", quoted_name(call.name)));
  }
  if (declaration && declaration->identity.get() == Identity::user) {
    return HostToolAnswer::refused(fmt::format(
        "host tool {} acts in a user's name, which is not served: that takes a token minted for "
        "this run, a check that the token's audience lies within the run's egress, and an "
        "environment that only this execution can read.",
        quoted_name(call.name)));
  }
  return std::nullopt;
}

std::optional<HostToolAnswer> HostToolRun::State::read_arguments(HostToolCallState& call,
                                                                 std::string text) const {
  // The text is there until its strings stand in the value.
  const std::uint64_t parsed = text.size() + kJsonValueBytes * json_values_at_most(text);
  if (!call.held.resize(text.size() + parsed)) {
    return HostToolAnswer::refused(
        fmt::format("the arguments of host tool {} take {} bytes; of the {} that the host holds "
                    "for the calls of a run at a time, {} are left.",
                    quoted_name(call.name), text.size() + parsed, held->max(), held->left()));
  }
  boost::json::value value;
  try {
    value = parse_json(text);
  } catch (const JsonError& error) {
    return HostToolAnswer::refused(fmt::format(
        "the arguments of host tool {}: {}.", quoted_name(call.name), quote_bounded(error.what())));
  }
  if (value.is_object()) {
    call.arguments = std::move(value.get_object());
  } else if (!value.is_null()) {
    return HostToolAnswer::refused(
        fmt::format("the arguments of host tool {} must be an object.", quoted_name(call.name)));
  }
  text = {};
  call.held.resize(parsed);
  return std::nullopt;
}

std::optional<HostToolAnswer> HostToolRun::State::reserve(HostToolCallState& call) {
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

bool HostToolRun::State::exceeds(std::uint64_t there, std::uint64_t bytes, std::uint64_t framing,
                                 std::uint64_t cap) {
  return there > cap || bytes > cap - there || framing > cap - there - bytes;
}

void HostToolRun::State::give_slot_back(HostToolCallState& call) {
  const std::lock_guard lock(mutex);
  if (std::exchange(call.reserved, false)) --counters.delivered;
}

std::optional<HostToolAnswer> HostToolRun::State::refuse_before_function(
    const HostToolCallState& call) const {
  if (shared->abandoned >= kMaxAbandonedCalls) {
    log(LogLevel::error, fmt::format("{} functions have not come back; no more are called",
                                     shared->abandoned.load()));
    return HostToolAnswer::refused("the host is busy with calls that do not end; go on without.");
  }
  if (const auto mismatch = call.tool->schema.check(call.arguments)) {
    return HostToolAnswer::refused(fmt::format("host tool {} was not called: {}",
                                               quoted_name(call.name),
                                               quote_bounded(mismatch->sentence("argument"))));
  }
  return std::nullopt;
}

}  // namespace casemate
