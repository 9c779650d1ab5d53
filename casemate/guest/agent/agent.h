#pragma once

#include <linux/sched.h>
#include <sys/types.h>

#include <cstdint>

#include "casemate/guest/agent/starter.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What a process that becomes a sandbox's agent has from its birth, before there is a sandbox.
struct SpareParts {
  // To the keeper, seqpacket: one byte comes when the id maps are written, then the request as the
  // keeper had it, with the descriptors that `send_plan` names. An `AgentReport` goes back.
  sys::UniqueFd status;
  // The keeper's process.
  sys::UniqueFd keeper;
  // The pid namespace is there and every other is not: /proc is mounted before there is a user
  // namespace, and a byte says to the keeper that there is.
  bool proc_first = false;
  // As in `RootPlan`.
  bool one_id = false;
  // The keeper may drop groups, and so has to.
  bool drops_groups = false;
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

// The agent's whole life, pid 1 of a sandbox: builds the root, hears what sandbox it is, listens,
// clones a call process for each connection, reaps, counts leases. It parses nothing that a program
// can influence. Ends, and with it every process of the sandbox, when the last lease closed (and
// the time that it wished to be kept went by), or with the keeper.
//
// Called in the process that `clone_process` made with all namespaces, or with `proc_first` a pid
// namespace only; never returns.
[[noreturn]] void run_agent(SpareParts parts) noexcept;

// Tells an agent what sandbox it is: the request, and with it the sockets to listen on (calls,
// leases), the first lease, the image where there is one, the groups to live in and the files of
// the programs' group where there is one. Throws `std::system_error`.
void send_plan(int agent, const StartPlan& plan);

// What a contained agent says first, so that its keeper learns its number.
inline constexpr char kAgentHello = 'h';
// The same life as pid 1 of a container: a runtime has made the namespaces, the ids and the root
// with its /proc. `keeper` is a connection as `SpareParts::status` is; its end ends the sandbox.
[[noreturn]] void run_contained_agent(sys::UniqueFd keeper) noexcept;

}  // namespace casemate::guest
