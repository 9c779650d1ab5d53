#pragma once

#include <linux/sched.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "casemate/guest/agent/linux_place.h"
#include "casemate/guest/agent/program_group.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What the keeper hands to the process that becomes a sandbox's agent.
struct AgentPlan {
  RootPlan root;
  LinuxPlace::Config place;
  // Held for as long as the sandbox lives; empty for the image `host`.
  sys::UniqueFd image;
  // Bound by the keeper, listened on here: that is how others see that the sandbox is ready.
  sys::UniqueFd agent_socket;
  sys::UniqueFd lease_socket;
  // The pid namespace is there and every other is not: /proc is mounted before there is a user
  // namespace, and a byte says to the keeper that there is.
  bool proc_first = false;
  // There from the start: a sandbox that nobody holds any more ends, however early that is.
  sys::UniqueFd first_lease;
  std::uint64_t keep_idle_ms = 0;
  // To the keeper: one byte comes when the id maps are written, an `AgentReport` goes back.
  sys::UniqueFd status;
  sys::UniqueFd keeper;
  // A runtime has made the namespaces, the ids and the root with its /proc. `keeper` is then a
  // connection to the keeper, and so is `status`; the end of the former ends the sandbox.
  bool contained = false;
  // Files of the control groups that it lives in (`Place::join_groups`).
  std::vector<sys::UniqueFd> groups;
  // Where its programs are counted by nobody outside.
  std::optional<ProgramGroup> programs{};
};

// All that a sandbox has of its own.
inline constexpr std::uint64_t kAllNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
                                                CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                                                CLONE_NEWCGROUP;

// What the agent says once.
struct AgentReport {
  int error;
  char text[256];
};

// Takes from this process and its children what an execve could give back; inherited, so that it is
// not in each program's way, and nothing before a program ever calls execve. Throws
// `std::system_error`.
void empty_bounding_set();

// The agent's whole life, pid 1 of a sandbox: builds the root, listens, clones a call process for
// each connection, reaps, counts leases. It parses nothing that a program can influence. Ends, and
// with it every process of the sandbox, when the last lease closed (and the time that it wished to
// be kept went by), or with the keeper.
//
// Called in the process that `clone_process` made with all namespaces, or with `proc_first` a pid
// namespace only; never returns.
[[noreturn]] void run_agent(AgentPlan plan) noexcept;

// What a contained agent says first, so that its keeper learns its number.
inline constexpr char kAgentHello = 'h';
// The same life as pid 1 of a container: `keeper` is a seqpacket socket from which the request
// comes as the keeper had it, with the sockets to listen on (calls, leases), the first lease, the
// image where there is one, and the groups to live in.
[[noreturn]] void run_contained_agent(sys::UniqueFd keeper) noexcept;

}  // namespace casemate::guest
