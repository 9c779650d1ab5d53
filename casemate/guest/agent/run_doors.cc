#include "casemate/guest/agent/run_doors.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>
#include <exception>
#include <vector>

#include "casemate/guest/agent/guest_io.h"
#include "casemate/sys/process.h"

namespace casemate::guest {

int run_doors(Doors& doors, std::span<const int> groups, sys::UniqueFd parent_alive,
              Place& place) noexcept try {
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
  prctl(PR_SET_NAME, "casemate-doors");
  // Before it serves anybody.
  if (place.join_groups(groups) != 0) return 1;
  // Two for each tunnel, four more while it is held up both ways, and one a listener.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // The place's own among them, which lead to what other calls have.
  std::vector<int> kept = doors.descriptors();
  kept.insert(kept.end(), {0, 1, 2, parent_alive.get()});
  sys::close_all_except(kept);
  if (place.become_user() != 0) return 1;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || place.filter_calls() != 0) return 1;
  harden_process(parent_alive.get());
  doors.run();
  return 0;
} catch (const std::exception&) {
  return 1;
}

}  // namespace casemate::guest
