#include "casemate/local/call_accounting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/core/control.h"
#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/diagnosis.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/file.h"

namespace casemate::local {
namespace {

// Longer than a replacement or a small snapshot takes.
constexpr std::chrono::milliseconds kBusyPatience{500};

// Held, shared, while a call is open. A replacement takes it alone, for the moment of ending the
// sandbox, and a snapshot while it is taken.
FileLock take_busy_lock(int directory, const CallControl& control) {
  const auto until = std::chrono::steady_clock::now() + kBusyPatience;
  const bool is_hurried = control.deadline && *control.deadline < until;
  CallControl patience = control;
  if (!is_hurried) patience.deadline = until;
  try {
    return FileLock::wait(directory, guest::kBusyLockName, FileLock::Kind::shared, patience,
                          "a snapshot or a replacement of the sandbox to be over");
  } catch (const SandboxTimeout&) {
    if (is_hurried) throw;
    throw SandboxBusy("a snapshot of the sandbox is taken at this moment, or another replaces it",
                      "try again when that is over");
  } catch (const std::system_error&) {
    // The directory is gone: it was disposed.
    throw SandboxUnavailable("the sandbox was ended or replaced", "acquire it again");
  }
}

}  // namespace

LocalCallAccounting::LocalCallAccounting(ControlGroupLayout layout, std::string id,
                                         std::string call, const CallBounds& bounds,
                                         sys::UniqueFd directory, guest::CallUse use,
                                         const CallControl& control)
    : layout_(std::move(layout)),
      id_(std::move(id)),
      // Not the id alone: groups are made before the sandbox can refuse an id that is open, and
      // they must not be those of the call that has it.
      call_(std::move(call) + "-" + random_hex(4)),
      directory_(std::move(directory)),
      bounds_(bounds),
      owner_(getpid()) {
  if (use == guest::CallUse::now) take_into_use(control);
  const auto failed = carry_out(call_steps(layout_, id_, call_, bounds_.pids));
  if (!failed.empty()) {
    remove_groups();
    throw SandboxUnavailable(
        fmt::format("a call's control group could not be made: {}", failed.begin()->second),
        "the sandbox may have ended; acquire it again");
  }
  try {
    members_ = open_members(member_directories(layout_, id_, call_));
    counters_.emplace(layout_, id_, call_);
    if (bounds_.cpu_seconds != 0) {
      meter_ = sys::open_at(AT_FDCWD, cpu_counter_file(layout_, id_, call_).c_str(), O_RDONLY);
    }
  } catch (const std::system_error& error) {
    members_.clear();
    counters_.reset();
    remove_groups();
    throw SandboxUnavailable(fmt::format("a call's control group: {}", error.what()),
                             provider_hint(error));
  }
}

LocalCallAccounting::~LocalCallAccounting() {
  if (owner_ != getpid()) return;
  members_.clear();
  if (was_used_) mark_used(directory_.get());
  remove_groups();
}

// One that a process is still in stays; the keeper removes it with its sandbox.
void LocalCallAccounting::remove_groups() noexcept {
  if (removed_) return;
  removed_ = true;
  for (const std::string& group : call_directories(layout_, id_, call_)) {
    if (sys::remove_control_group(group) != 0) removed_ = false;
  }
}

void LocalCallAccounting::take_into_use(const CallControl& control) {
  busy_.emplace(take_busy_lock(directory_.get(), control));
  was_used_ = true;
}

// While the guest puts its own things away: what has ended is in no group any more.
void LocalCallAccounting::closing() noexcept {
  if (running_ == 0) remove_groups();
}

// A program that stays has a mark of its own.
void LocalCallAccounting::closed(bool known) noexcept {
  if (known) busy_.reset();
}

std::vector<int> LocalCallAccounting::groups() const {
  std::vector<int> numbers;
  for (const sys::UniqueFd& member : members_) numbers.push_back(member.get());
  return numbers;
}

std::optional<guest::CpuBudget> LocalCallAccounting::cpu_budget() const {
  if (!meter_) return std::nullopt;
  return guest::CpuBudget{.meter = meter_.get(),
                          .limit = std::chrono::seconds(bounds_.cpu_seconds),
                          .share_millis = bounds_.cpu_millis};
}

// A lock of its own on the same file: it belongs to whoever has the descriptor, in the sandbox too,
// and ends with the last of them.
sys::UniqueFd LocalCallAccounting::mark_busy() {
  sys::UniqueFd file(
      openat(directory_.get(), guest::kBusyLockName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file && flock(file.get(), LOCK_SH | LOCK_NB) == 0) return file;
  throw SandboxUnavailable("the sandbox was ended or replaced by another process",
                           "acquire it again");
}

guest::CallCounters LocalCallAccounting::snapshot() noexcept {
  ++running_;
  try {
    const GroupCounters counters = counters_->read();
    return {.oom_kills = counters.memory_kills.value_or(0),
            .refused_forks = counters.refused_forks.value_or(0),
            .cpu = std::chrono::nanoseconds(counters.cpu_nanoseconds.value_or(0))};
  } catch (const std::exception&) {
    return {};
  }
}

void LocalCallAccounting::finish(const guest::CallCounters& before, ExecResult& result) noexcept {
  try {
    const GroupCounters after = counters_->read();
    if (after.cpu_nanoseconds) {
      result.cpu = std::chrono::nanoseconds(*after.cpu_nanoseconds) - before.cpu;
    }
    if (after.peak_memory) result.peak_memory = *after.peak_memory;
    const bool killed = result.outcome == Outcome::signaled && result.signal == "SIGKILL";
    if (kills_.concern(before.oom_kills, after.memory_kills.value_or(0), killed)) {
      // Where the program itself lives on or ended by its own, its status stands, with a note.
      if (killed) {
        result.outcome = Outcome::out_of_memory;
        result.signal.reset();
      }
      if (result.outcome != Outcome::timed_out) result.limit = Limit::memory;
    } else if (after.refused_forks.value_or(0) > before.refused_forks &&
               result.outcome != Outcome::timed_out) {
      result.limit = Limit::pids;
    }
    // Of what else a program may die by SIGKILL nothing names a limit.
    const auto spent = std::chrono::nanoseconds(after.cpu_nanoseconds.value_or(0));
    if (meter_ && spent >= std::chrono::seconds(bounds_.cpu_seconds) && !result.limit && killed) {
      result.limit = Limit::cpu;
    }
  } catch (const std::exception&) {
    // The result stands as the guest reported it.
  }
  // From here on `closing` may take the counters away.
  --running_;
}

}  // namespace casemate::local
