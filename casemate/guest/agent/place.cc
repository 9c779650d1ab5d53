#include "casemate/guest/agent/place.h"

#include <unistd.h>

#include <cerrno>

namespace casemate::guest {

void Place::seal_host_tools() {}

void Place::give_pipe(int /*pipe*/) {}

bool Place::processes_ran_out() noexcept { return false; }

int Place::join_groups(std::span<const int> groups) noexcept {
  for (const int group : groups) {
    if (write(group, "0", 1) != 1) return errno;
  }
  return 0;
}

}  // namespace casemate::guest
