#pragma once

#include <span>

#include "casemate/guest/agent/doors/doors.h"
#include "casemate/guest/agent/place.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The whole life of the process that serves a call's doors, which were opened by its parent: the
// program's user, without capabilities, and in a pid namespace of its own where the place has such,
// so that no program can name it and it can name nobody. `parent_alive` is a pidfd of the process
// whose death must end this one too. It joins `groups`, those of the call's programs: what it does
// for them counts as theirs, and stays within their limits. Call it in the child of
// `Place::clone_exec_init`. Returns the exit status.
//
// A program that finds a fault in it gains what every program of the call has: the host's socket.
int run_doors(Doors& doors, std::span<const int> groups, sys::UniqueFd parent_alive,
              Place& place) noexcept;

}  // namespace casemate::guest
