#include "casemate/guest/agent/place.h"

#include <unistd.h>

#include <cerrno>

#include "casemate/sys/error.h"

namespace casemate::guest {

void Place::seal_sockets() {}

void Place::enter_call_network(const std::vector<std::string>& /*addresses*/) {
  sys::throw_error(ENOSYS, "a network of a call's own");
}

void Place::give_pipe(int /*pipe*/) {}

bool Place::processes_ran_out() noexcept { return false; }

int Place::join_groups(std::span<const int> groups) noexcept {
  for (const int group : groups) {
    if (write(group, "0", 1) != 1) return errno;
  }
  return 0;
}

}  // namespace casemate::guest
