#pragma once

#include <vector>

#include "casemate/guest/agent/identity.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// What the keeper hands to it.
struct MachineAgentParts {
  CreateSandbox request{};
  // The sandbox's own.
  sys::UniqueFd directory;
  // Bound in it, listened on here: that is how others see that the sandbox is ready.
  sys::UniqueFd agent_socket;
  sys::UniqueFd lease_socket;
  // There from the start: a sandbox that nobody holds any more ends, however early that is.
  sys::UniqueFd first_lease;
  // To the keeper: an `AgentReport` goes there, once.
  sys::UniqueFd status;
  sys::UniqueFd keeper;
  // Kept as long as the machine lives, with the lock that it carries: what is packed of the image
  // goes with that.
  sys::UniqueFd image;
  // Of the hypervisor.
  SandboxIds ids;
  // By which this process joins control groups; the last so many as the request says by which the
  // hypervisor does.
  std::vector<sys::UniqueFd> groups;
};

// The whole life of the process that keeps one virtual machine, on the host: starts the hypervisor
// (fresh, or from a saved machine), says to the guest what it is for, and from then on is to the
// host what the agent of any sandbox is: listens on its two sockets, carries every connection to
// the agent inside, counts leases. Ends, and with it the hypervisor, when the last lease closed,
// when the machine ends, when the guest breaks a rule of the stream, or with the keeper.
//
// Called as pid 1 of a pid namespace of its own, so that its end is the hypervisor's; never
// returns. Takes every byte of the guest and of the hypervisor as hostile.
[[noreturn]] void run_machine_agent(MachineAgentParts parts) noexcept;

}  // namespace casemate::guest
