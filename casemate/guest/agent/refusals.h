#pragma once

#include <cstdint>

namespace casemate::guest {

// What the kernel refused to a control group, as far as those in it may see: the files that engines
// show in a container's /sys/fs/cgroup, version 1 or 2. What is not shown counts as 0.
struct Refusals {
  // Processes that were killed because memory ran out.
  std::uint64_t memory_kills = 0;
  // Processes that were not made because there were too many.
  std::uint64_t forks = 0;
};

Refusals read_refusals() noexcept;

}  // namespace casemate::guest
