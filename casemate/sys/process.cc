#include "casemate/sys/process.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::sys {

pid_t clone_process(std::uint64_t namespace_flags) {
  clone_args arguments{};
  arguments.flags = namespace_flags;
  arguments.exit_signal = SIGCHLD;
  const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) throw_errno("cloning a process");
  return static_cast<pid_t>(pid);
}

UniqueFd open_pid(pid_t pid) {
  UniqueFd descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!descriptor) throw_errno("opening process " + std::to_string(pid));
  return descriptor;
}

void send_signal(int pid_descriptor, int signal) {
  if (syscall(SYS_pidfd_send_signal, pid_descriptor, signal, nullptr, 0) < 0 && errno != ESRCH) {
    throw_errno("sending a signal");
  }
}

bool wait_ended(int pid_descriptor, std::optional<SteadyTime> until) {
  pollfd entry{.fd = pid_descriptor, .events = POLLIN, .revents = 0};
  return poll_until({&entry, 1}, until) > 0;
}

bool has_ended(int pid_descriptor) { return wait_ended(pid_descriptor, SteadyTime{}); }

std::optional<pid_t> number_in_proc(int pid_descriptor) {
  const std::string path = "/proc/self/fdinfo/" + std::to_string(pid_descriptor);
  const std::string text = read_file_at(AT_FDCWD, path.c_str(), 4096);
  constexpr std::string_view kName = "\nPid:";
  const std::size_t at = text.find(kName);
  if (at == std::string::npos) return std::nullopt;
  // 0: not of that pid namespace; -1: it ended.
  const int number = std::atoi(text.c_str() + at + kName.size());
  return number > 0 ? std::optional<pid_t>(number) : std::nullopt;
}

void die_with_parent(int parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) throw_errno("tying a process to its parent");
  if (has_ended(parent)) _exit(0);
}

void make_undumpable() {
  if (prctl(PR_SET_DUMPABLE, 0) < 0) throw_errno("making a process undumpable");
}

namespace {

// No descriptor is above it. A higher number gVisor takes for a negative one.
constexpr unsigned kHighest = std::numeric_limits<int>::max();

void close_range_of(unsigned first, unsigned last) {
  if (syscall(SYS_close_range, first, last, 0U) < 0) throw_errno("closing descriptors");
}

}  // namespace

void close_from(int from) { close_range_of(static_cast<unsigned>(from), kHighest); }

void close_all_except(std::span<const int> kept) {
  std::vector<int> sorted(kept.begin(), kept.end());
  if (std::any_of(sorted.begin(), sorted.end(), [](int each) { return each < 0; })) {
    throw_error(EBADF, "closing all descriptors but some");
  }
  std::sort(sorted.begin(), sorted.end());
  unsigned next = 0;
  for (const int descriptor : sorted) {
    const unsigned number = static_cast<unsigned>(descriptor);
    if (number > next) close_range_of(next, number - 1);
    next = number + 1;
  }
  close_range_of(next, kHighest);
}

}  // namespace casemate::sys
