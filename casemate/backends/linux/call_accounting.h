#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "casemate/backends/linux/control_groups.h"
#include "casemate/backends/linux/state_directory.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::linux_backend {

// One call's control groups, and the mark that its sandbox is busy. In a forked child of the host
// it does nothing.
class LinuxCallAccounting final : public guest::CallAccounting {
 public:
  // Makes the groups. `directory` is the sandbox's own. Throws `SandboxUnavailable` when the
  // sandbox is being replaced at this moment, or when a group that was to be had cannot be.
  LinuxCallAccounting(ControlGroupLayout layout, std::string id, std::string call,
                      std::uint64_t pids, std::shared_ptr<const sys::UniqueFd> directory);
  ~LinuxCallAccounting() override;
  LinuxCallAccounting(const LinuxCallAccounting&) = delete;
  LinuxCallAccounting& operator=(const LinuxCallAccounting&) = delete;

  std::vector<int> groups() const override;
  guest::CallCounters snapshot() noexcept override;
  void finish(const guest::CallCounters& before, ExecResult& result) noexcept override;

 private:
  ControlGroupLayout layout_;
  std::string id_;
  // What its groups are called by.
  std::string call_;
  std::shared_ptr<const sys::UniqueFd> directory_;
  std::vector<sys::UniqueFd> members_;
  FileLock busy_;
  pid_t owner_;
};

}  // namespace casemate::linux_backend
