#include "casemate/guest/ready_call.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <tuple>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/log.h"
#include "casemate/sys/deadline.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

// Who was called so often will be called again.
constexpr int kCallsBefore = 2;
constexpr std::size_t kMostOfABackend = 32;
// It is for later: a guest that is not there at once does not hold up the program of now.
constexpr std::chrono::milliseconds kPatience{100};

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
    asked.egress = parts.egress(profile.id);
    request.egress = true;
    request.door_rules = parts.door_rules;
    descriptors.push_back(asked.egress->socket());
  }
  asked.control->put(FrameType::open_call, encode(request), descriptors);
  sys::UniqueFd guests_end;
  if (profile.starts_program) {
    std::tie(asked.exec, guests_end) = sys::socket_pair(sys::SocketType::stream);
    const int descriptor = guests_end.get();
    asked.control->put(FrameType::attach, encode(AttachKind::exec), {&descriptor, 1});
  }
  asked.control->flush(control);
}

}  // namespace

AskedCall ask_for_call(const CallProfile& profile, const AgentSandboxParts& parts, CallUse use,
                       const CallControl& control) {
  AskedCall asked;
  asked.request.version = kProtocolVersion;
  asked.request.id = profile.id;
  asked.control = std::make_unique<Connection>(parts.connect(control), parts.timing.silence);
  if (parts.account) asked.accounting = parts.account(profile.id, use, control);
  try {
    send_request(asked, profile, parts, control);
  } catch (...) {
    if (asked.accounting) asked.accounting->closed(false);
    throw;
  }
  return asked;
}

std::optional<AskedCall> ReadyCall::take() {
  if (!owner_.is_current()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  ++calls_;
  return std::exchange(next_, std::nullopt);
}

void ReadyCall::fill(When now, const AgentSandboxParts& parts) noexcept try {
  if (now != when_ || !owner_.is_current()) return;
  {
    const std::lock_guard lock(mutex_);
    if (next_ || calls_ < kCallsBefore) return;
    CallControl control;
    control.deadline = sys::deadline_after(kPatience);
    CallProfile profile;
    profile.id = random_hex(6);
    profile.starts_program = true;
    next_ = ask_for_call(profile, parts, CallUse::later, control);
  }
  if (parts.ready_calls) parts.ready_calls->add(shared_from_this());
} catch (const std::exception& error) {
  // Whoever comes next opens one, and hears why that is not possible.
  write_log(parts.log, LogLevel::debug,
            fmt::format("sandbox {}: the next call is not opened ahead: {}", parts.info.id,
                        error.what()));
}

void ReadyCall::drop() noexcept {
  std::optional<AskedCall> dropped;
  const std::lock_guard lock(mutex_);
  dropped = std::exchange(next_, std::nullopt);
}

void ReadyCalls::add(const std::shared_ptr<ReadyCall>& call) {
  // Ended, if at all, without the lock.
  std::shared_ptr<ReadyCall> oldest;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(calls_, [&](const std::weak_ptr<ReadyCall>& each) {
      const auto alive = each.lock();
      return !alive || alive == call;
    });
    calls_.push_back(call);
    if (calls_.size() <= kMostOfABackend) return;
    oldest = calls_.front().lock();
    calls_.pop_front();
  }
  if (oldest) oldest->drop();
}

}  // namespace casemate::guest
