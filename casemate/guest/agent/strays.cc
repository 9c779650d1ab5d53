#include "casemate/guest/agent/strays.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <system_error>

#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

// proc(5); of a process with one thread these are all.
constexpr char kChildren[] = "/proc/thread-self/children";
constexpr std::size_t kMaxChildrenBytes = 1 << 20;
// Each ends what the one before left without a parent.
constexpr int kMostStrayRounds = 64;

// Empty where /proc does not tell.
std::string children_of_this_process() {
  try {
    return sys::read_file_at(AT_FDCWD, kChildren, kMaxChildrenBytes);
  } catch (const std::system_error&) {
    return "";
  }
}

}  // namespace

void reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void end_strays(const std::function<bool(pid_t)>& is_known) {
  for (int round = 0; round < kMostStrayRounds; ++round) {
    bool found = false;
    // Numbers with a space behind each.
    const std::string children = children_of_this_process();
    for (const char* at = children.c_str(); *at != '\0';) {
      char* end = nullptr;
      const pid_t pid = static_cast<pid_t>(std::strtol(at, &end, 10));
      at = *end == ' ' ? end + 1 : "";
      if (pid <= 0 || is_known(pid)) continue;
      found = true;
      kill(pid, SIGKILL);
      reap(pid);
    }
    if (!found) return;
  }
}

void reap_strays(const std::function<bool(pid_t)>& is_awaited) {
  siginfo_t ended{};
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid > 0) {
    if (is_awaited(ended.si_pid)) return;
    reap(ended.si_pid);
    ended = {};
  }
}

}  // namespace casemate::guest
