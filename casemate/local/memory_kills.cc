#include "casemate/local/memory_kills.h"

#include <algorithm>

namespace casemate::local {

// The latest: a program's own end is the last thing that happened to it.
bool MemoryKills::concern(std::uint64_t before, std::uint64_t now, bool killed) {
  if (now <= before) return false;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = now; number > before; --number) {
    if (std::ranges::find(explained_, number) != explained_.end()) continue;
    if (killed) explained_.push_back(number);
    return true;
  }
  return false;
}

}  // namespace casemate::local
