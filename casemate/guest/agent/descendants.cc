#include "casemate/guest/agent/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

struct CloseDirectory {
  void operator()(DIR* stream) const { closedir(stream); }
};

// 0 where there is none.
pid_t leading_number(std::string_view text) {
  pid_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Parent of each process there is.
std::map<pid_t, pid_t> all_parents() {
  std::map<pid_t, pid_t> parents;
  const std::unique_ptr<DIR, CloseDirectory> proc(opendir("/proc"));
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    const pid_t pid = leading_number(entry->d_name);
    if (pid <= 0) continue;
    std::string text;
    try {
      const std::string path = "/proc/" + std::to_string(pid) + "/stat";
      text = sys::read_file_at(AT_FDCWD, path.c_str(), 4096);
    } catch (const std::system_error&) {
      continue;  // it has ended
    }
    // "pid (name) state parent ...", and the name may hold anything.
    const std::size_t after_name = text.rfind(')');
    if (after_name == std::string::npos || after_name + 4 >= text.size()) continue;
    parents[pid] = leading_number(std::string_view(text).substr(after_name + 4));
  }
  return parents;
}

}  // namespace

void become_subreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) sys::throw_errno("PR_SET_CHILD_SUBREAPER");
}

bool has_children() noexcept {
  siginfo_t ignored{};
  return waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void kill_descendants() {
  const pid_t self = getpid();
  const std::map<pid_t, pid_t> parents = all_parents();
  for (const auto& [pid, parent] : parents) {
    pid_t above = parent;
    // Read one after the other while numbers are used again, parents may seem to go in a circle.
    std::size_t steps = 0;
    while (above != self && above > 1 && parents.contains(above) && ++steps <= parents.size()) {
      above = parents.at(above);
    }
    if (above == self) kill(pid, SIGKILL);
  }
}

}  // namespace casemate::guest
