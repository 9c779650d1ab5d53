#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace casemate::microvm {

// Removes saved machines that nobody used for so long, and of the others all but the newest so
// many; never one that is being read. Also what a killed process left half written. Never throws.
void prune_saved_machines(const std::string& directory, std::chrono::hours unused,
                          std::size_t most) noexcept;

// Says that it was used now.
void mark_saved_machine_used(const std::string& path) noexcept;

}  // namespace casemate::microvm
