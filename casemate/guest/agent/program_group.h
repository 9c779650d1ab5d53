#pragma once

#include <cstddef>

#include "casemate/guest/agent/refusals.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// One control group (version 2) of all programs of a sandbox, by files that its maker has opened:
// the kernel asks for the rights of who opened them. For a place whose kernel is the sandbox's own,
// where nobody outside counts.
struct ProgramGroup {
  // cgroup.procs of the group, for writing.
  sys::UniqueFd members{};
  // memory.events of the group or one above it, and pids.events.
  sys::UniqueFd memory_events{};
  sys::UniqueFd fork_events{};
};
inline constexpr std::size_t kProgramGroupFiles = 3;

// What it counted so far.
Refusals read_refusals(const ProgramGroup& group) noexcept;

}  // namespace casemate::guest
