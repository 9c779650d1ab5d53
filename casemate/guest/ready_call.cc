#include "casemate/guest/ready_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/log.h"
#include "casemate/core/errors.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

// Who was called so often will be called again.
constexpr int kCallsBefore = 2;
constexpr std::size_t kMostOfABackend = 32;
// It is for later: a guest that is not there at once does not hold up the program of now.
constexpr std::chrono::milliseconds kPatience{100};

AskedCall call_of(std::string id) {
  AskedCall asked;
  asked.request.version = kProtocolVersion;
  asked.request.id = std::move(id);
  return asked;
}

void connect(AskedCall& asked, const AgentSandboxParts& parts, const CallControl& control) {
  asked.control = std::make_unique<Connection>(parts.connect(control), parts.timing.silence);
}

void send_request(AskedCall& asked, const CallProfile& profile, const AgentSandboxParts& parts,
                  const CallControl& control) {
  OpenCall& request = asked.request;
  std::vector<int> descriptors;
  if (asked.accounting) {
    descriptors = asked.accounting->groups();
    if (const std::optional<CpuBudget> budget = asked.accounting->cpu_budget()) {
      descriptors.push_back(budget->meter);
      request.cpu_limit_ns = static_cast<std::uint64_t>(budget->limit.count());
      request.cpu_share_millis = budget->share_millis;
    }
  }
  request.host_tools = profile.host_tool_socket >= 0;
  if (request.host_tools) descriptors.push_back(profile.host_tool_socket);
  if (parts.egress) {
    asked.egress = parts.egress(request.id);
    request.egress = true;
    request.door_rules = parts.door_rules;
    descriptors.push_back(asked.egress->socket());
  }
  sys::UniqueFd guests_end;
  if (profile.starts_program) std::tie(asked.exec, guests_end) = make_connection();
  try {
    asked.control->put(FrameType::open_call, encode(request), descriptors);
    if (guests_end) {
      const int descriptor = guests_end.get();
      asked.control->put(FrameType::attach, encode(AttachKind::exec), {&descriptor, 1});
    }
    asked.control->flush(control);
  } catch (const SandboxUnavailable&) {
    // It is gone. Whoever reads the answer hears why, if it has said so.
  }
}

void attach_files(AskedCall& asked, const AgentSandboxParts& parts, const CallControl& control) {
  auto [near, far] = make_connection();
  const int descriptor = far.get();
  asked.control->put(FrameType::attach, encode(AttachKind::files), {&descriptor, 1});
  asked.control->flush(control);
  asked.files = std::make_unique<Connection>(std::move(near), parts.timing.silence);
}

}  // namespace

AskedCall ask_for_call(const CallProfile& profile, const AgentSandboxParts& parts, CallUse use,
                       const CallControl& control) {
  AskedCall asked = call_of(profile.id);
  connect(asked, parts, control);
  if (parts.account) asked.accounting = parts.account(profile.id, use, control);
  const std::shared_ptr<CallAccounting> accounting = asked.accounting;
  try {
    send_request(asked, profile, parts, control);
  } catch (...) {
    end_asked(std::move(asked));
    if (accounting) accounting->closed(false);
    throw;
  }
  return asked;
}

void end_asked(AskedCall asked) noexcept try {
  asked.exec.reset();
  asked.files.reset();
  if (!asked.control) return;
  CallControl control;
  control.deadline = sys::deadline_after(kPatience);
  asked.control->put(FrameType::close_call);
  asked.control->flush(control);
  // What it said to the opening may still be there.
  for (int frames = 0; frames < 2; ++frames) {
    if (is(asked.control->receive(control), FrameType::call_closed)) return;
  }
} catch (const std::exception&) {
  // Gone, or silent.
}

bool ReadyCalls::begin(ReadyCall& call) {
  // In a forked child the lock may be held for ever.
  if (!owner_.is_current()) return false;
  // Destroyed, last, without the lock.
  std::vector<AskedCall> lost;
  const std::lock_guard lock(mutex_);
  if (placed_.size() >= kMostOfABackend) {
    lost.reserve(placed_.size());
    std::erase_if(placed_, [&](ReadyCall* each) {
      std::optional<AskedCall> its = each->take_lost();
      if (its) lost.push_back(*std::move(its));
      return its.has_value();
    });
  }
  if (placed_.size() >= kMostOfABackend) return false;
  placed_.push_back(&call);
  return true;
}

void ReadyCalls::end(ReadyCall& call) noexcept {
  if (!owner_.is_current()) return;
  const std::lock_guard lock(mutex_);
  std::erase(placed_, &call);
}

ReadyCall::~ReadyCall() {
  if (!owner_.is_current()) return;
  std::optional<AskedCall> asked;
  {
    // `ReadyCalls` may be looking at it.
    const std::lock_guard lock(mutex_);
    asked = give_up();
  }
  if (asked) end_asked(*std::move(asked));
}

// Under the lock.
std::optional<AskedCall> ReadyCall::give_up() noexcept {
  if (places_) std::exchange(places_, nullptr)->end(*this);
  return std::exchange(next_, std::nullopt);
}

std::optional<AskedCall> ReadyCall::take_lost() noexcept try {
  // What somebody is busy with is not lost, and whoever asks has the lock of his own.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !next_ || !next_->control || !has_hung_up(next_->control->descriptor())) {
    return std::nullopt;
  }
  places_ = nullptr;
  return std::exchange(next_, std::nullopt);
} catch (const std::system_error&) {
  // Could not be looked at.
  return std::nullopt;
}

std::optional<AskedCall> ReadyCall::take(const CallControl& control) {
  if (!owner_.is_current()) return std::nullopt;
  ++calls_;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  // What the guest was not asked for yet stays for its time.
  if (!lock || !next_ || !next_->control) return std::nullopt;
  try {
    if (next_->accounting) next_->accounting->take_into_use(control);
  } catch (const SandboxUnavailable&) {
    give_up();  // with its sandbox
    throw;
  }
  return give_up();
}

void ReadyCall::prepare(const AgentSandboxParts& parts, const CallControl& control) noexcept {
  attempt(parts, control, [&](const CallControl& bounded) {
    if (next_) return;
    if (parts.ready_calls) {
      if (!parts.ready_calls->begin(*this)) return;
      places_ = parts.ready_calls;
    }
    next_ = call_of(random_hex(6));
    if (parts.account)
      next_->accounting = parts.account(next_->request.id, CallUse::later, bounded);
  });
}

void ReadyCall::ask(const AgentSandboxParts& parts) noexcept {
  attempt(parts, {}, [&](const CallControl& bounded) {
    if (!next_ || next_->control) return;
    CallProfile profile;
    profile.starts_program = true;
    connect(*next_, parts, bounded);
    try {
      send_request(*next_, profile, parts, bounded);
      if (files_) attach_files(*next_, parts, bounded);
    } catch (...) {
      if (auto asked = give_up()) end_asked(*std::move(asked));
      throw;
    }
  });
}

// Whoever comes next opens one, and hears why that is not possible.
template <typename Act>
void ReadyCall::attempt(const AgentSandboxParts& parts, const CallControl& control,
                        Act act) noexcept try {
  if (!owner_.is_current() || calls_ < kCallsBefore || control.stop.stop_requested()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  CallControl bounded{.deadline = sys::deadline_after(kPatience), .stop = control.stop};
  if (control.deadline) bounded.deadline = std::min(*bounded.deadline, *control.deadline);
  try {
    act(bounded);
  } catch (...) {
    give_up();
    throw;
  }
} catch (const std::exception& error) {
  write_log(parts.log, LogLevel::debug,
            fmt::format("sandbox {}: the next call is not opened ahead: {}", parts.info.id,
                        error.what()));
}

}  // namespace casemate::guest
