#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/local/control_groups.h"
#include "casemate/local/memory_kills.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// What one call may have.
struct CallBounds {
  std::uint64_t pids = 0;
  // 0: no bound.
  std::uint64_t cpu_seconds = 0;
  // Of all the sandbox's calls together; 0: all processors there are.
  std::uint64_t cpu_millis = 0;
};

// One call's control groups, and the mark that its sandbox is busy. In a forked child of the host
// it does nothing.
class LocalCallAccounting final : public guest::CallAccounting {
 public:
  // Makes the groups. `directory` is the sandbox's own. Throws `SandboxUnavailable` when the
  // sandbox is over, or when a group that was to be had cannot be; `SandboxBusy`, after half a
  // second, while a snapshot of it is taken or another replaces it; `SandboxTimeout` and
  // `SandboxCancelled`, where `control` says so before.
  LocalCallAccounting(ControlGroupLayout layout, std::string id, std::string call,
                      const CallBounds& bounds, sys::UniqueFd directory, guest::CallUse use,
                      const CallControl& control);
  ~LocalCallAccounting() override;
  LocalCallAccounting(const LocalCallAccounting&) = delete;
  LocalCallAccounting& operator=(const LocalCallAccounting&) = delete;

  std::vector<int> groups() const override;
  std::optional<guest::CpuBudget> cpu_budget() const override;
  sys::UniqueFd mark_busy() override;
  void take_into_use(const CallControl& control) override;
  void closing() noexcept override;
  void closed(bool known) noexcept override;
  guest::CallCounters snapshot() noexcept override;
  void finish(const guest::CallCounters& before, ExecResult& result) noexcept override;

 private:
  ControlGroupLayout layout_;
  std::string id_;
  // What its groups are called by.
  std::string call_;
  sys::UniqueFd directory_;
  CallBounds bounds_;
  void remove_groups() noexcept;

  // Programs whose counters are still to be read.
  std::atomic<int> running_ = 0;
  MemoryKills kills_;
  std::vector<sys::UniqueFd> members_;
  // From when the groups are made.
  std::optional<CounterFiles> counters_;
  sys::UniqueFd meter_;
  std::optional<FileLock> busy_;
  // All of its groups.
  bool removed_ = false;
  // By somebody, which the sandbox's idle time counts from.
  std::atomic<bool> was_used_ = false;
  pid_t owner_;
};

}  // namespace casemate::local
