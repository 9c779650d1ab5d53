#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/starter.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What a keeper hands to the process that keeps one sandbox with a kernel of its own.
struct EnclosureParts {
  StartPlan start;
  // The runtime, an absolute path, and global options.
  std::vector<std::string> command;
  // In the caller's mount namespace.
  const RootTemplate* root = nullptr;
  // Nobody else's; whom it becomes.
  std::uint32_t user = 0;
  std::uint32_t group = 0;
  // To the keeper: an `AgentReport` goes there, once.
  sys::UniqueFd status;
  sys::UniqueFd keeper;
};

// The whole life of that process, on the host: starts the runtime, sees that the kernel inside is
// not this machine's, and from then on is to the host what the agent of any sandbox is: listens on
// its two sockets, carries every connection to the agent inside over one stream, counts leases.
// Ends, and with it every process of the runtime, when the last lease closed, when the container
// ends, when the guest breaks a rule of the stream, or with the keeper.
//
// Called in a process that was cloned with pid, mount and IPC namespaces of its own; never returns.
// What the runtime keeps of its container lies in another mount namespace, and is gone with that.
// Takes every byte of the guest's as hostile, and is secluded (seclusion.h) before the first can
// come. The runtime itself is not: it keeps the rights that it was started with.
[[noreturn]] void run_enclosure(EnclosureParts parts) noexcept;

}  // namespace casemate::guest
