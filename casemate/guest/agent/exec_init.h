#pragma once

#include <vector>

#include "casemate/guest/agent/cpu_budget_meter.h"
#include "casemate/guest/agent/place.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Whether the program has the sandbox's lifetime: a resident (see protocol.h).
enum class Stay : bool { no, yes };

// An exec-init's whole life: enters the exec's scope, reads the request of one exec
// connection (protocol.h), runs the program, pumps its streams, and when it
// ends, by itself, its timeout, a cancel or the host closing the connection, kills and reaps
// everything it started, sends what its pipes still hold and reports. Returns the exit status.
//
// `groups` are open files of control groups that the program joins (`Place::join_groups`). When the
// call's `budget` of processor time, if it has one, is spent, the program ends with SIGKILL.
// `parent_alive` is a pidfd of the process whose death must end this one too. Call it in the child
// of `Place::clone_exec_init`.
//
// A resident's program has neither input nor output, and the connection's end is not its own.
//
// What it buffers is bounded: `kStdinWindow` of input, 128 KiB and two frames of output. A host
// that reads slowly blocks the program on its pipe and nothing else: the timeout still bites.
int run_exec_init(sys::UniqueFd connection, Stay stay, const std::vector<sys::UniqueFd>& groups,
                  const CpuBudgetMeter* budget, sys::UniqueFd parent_alive, Place& place) noexcept;

}  // namespace casemate::guest
