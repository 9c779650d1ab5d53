#include "apps/casemate/host_command_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <initializer_list>

namespace casemate::app {

namespace {

// As a shell says "found, cannot be run" and "not found".
constexpr int kCannotStart = 126;
constexpr int kNoShell = 127;

// Descriptors of the guardian: reads the end when the host has gone; its watcher.
constexpr int kHost = 3;
constexpr int kWatcher = 4;

int open_process(pid_t process) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_open, process, 0U));
}

void mask_signals(bool all) noexcept {
  sigset_t signals;
  all ? ::sigfillset(&signals) : ::sigemptyset(&signals);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
}

// Makes the descriptors 0 to 4 of the guardian and leaves it no other.
bool place_descriptors(const HostCommandSetting& setting) noexcept {
  std::array<int, 5> from = {setting.input, setting.output, setting.errors, setting.host,
                             open_process(::getpid())};
  // Above the places that are about to be taken, so that none is closed before it was copied.
  for (int& fd : from) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 10);
  for (int to = 0; to < 5; ++to) {
    if (from[static_cast<std::size_t>(to)] < 0) return false;
    if (::dup2(from[static_cast<std::size_t>(to)], to) < 0) return false;
  }
  return ::syscall(SYS_close_range, 5U, UINT_MAX, 0U) == 0;
}

[[noreturn]] void become_command(const char* command) noexcept {
  // Should somebody kill the guardian, its command does not go on unguarded.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(kHost);
  ::close(kWatcher);
  // The host ignores them, and an ignored signal stays so over an exec.
  static_cast<void>(::signal(SIGPIPE, SIG_DFL));
  static_cast<void>(::signal(SIGXFSZ, SIG_DFL));
  mask_signals(false);
  ::execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  ::_exit(kNoShell);
}

// Until the command has ended, the host's end of the pipe has closed, or the watcher was killed.
void wait_for_one(pid_t command) noexcept {
  const int process = open_process(command);
  std::array<pollfd, 3> entries = {pollfd{kHost, POLLIN, 0}, pollfd{kWatcher, POLLIN, 0},
                                   pollfd{process, POLLIN, 0}};
  while (::poll(entries.data(), entries.size(), -1) < 0 && errno == EINTR) {
  }
  ::close(process);
}

// Kills every child of the guardian that the kernel names; false where it names none.
bool kill_children() noexcept {
  // Of this thread, the only one. Unreadable where the kernel was built without PROC_CHILDREN.
  const int list = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (list < 0) return false;
  std::array<char, 4096> text;
  const ssize_t count = ::read(list, text.data(), text.size());
  ::close(list);
  bool any = false;
  pid_t child = 0;
  for (ssize_t at = 0; at < count; ++at) {
    const char letter = text[static_cast<std::size_t>(at)];
    if (letter >= '0' && letter <= '9') {
      child = child * 10 + (letter - '0');
      continue;
    }
    // A number that the buffer cuts off is not taken for another one: each ends in a space.
    if (child > 0 && ::kill(child, SIGKILL) == 0) any = true;
    child = 0;
  }
  return any;
}

// Kills what is left of `child`, which leads a group of its own, and of what it started, and reaps
// all of it; the child's own exit status. What left the group (`timeout` and `setsid` do) comes
// here as an orphan, at the latest when what lies between them has been killed.
int end_all(pid_t child) noexcept {
  // The child is not reaped yet, so the group's number is nobody else's.
  ::kill(-child, SIGKILL);
  int status = kCannotStart;
  for (;;) {
    const bool any = kill_children();
    siginfo_t ended = {};
    // Children that cannot be named are waited for as the group that was killed.
    if (::waitid(any ? P_ALL : P_PGID, any ? 0 : static_cast<id_t>(child), &ended, WEXITED) != 0) {
      if (errno == EINTR) continue;
      return status;  // none is left
    }
    if (ended.si_pid != child) continue;
    status = ended.si_code == CLD_EXITED ? ended.si_status : 128 + ended.si_status;
  }
}

// A child in a group of its own, which also its parent sees to before anybody could want to kill
// it. Negative when there is none to be had.
pid_t fork_into_group() noexcept {
  const pid_t child = ::_Fork();
  ::setpgid(child > 0 ? child : 0, child > 0 ? child : 0);
  return child;
}

void leave_streams_to_the_command() noexcept {
  for (const int fd : {0, 1, 2}) ::close(fd);
}

// Starts the command and ends as it ends, after all that it started.
[[noreturn]] void guard(const char* command_line) noexcept {
  // Orphans of the command come here, to be reaped.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t command = fork_into_group();
  if (command < 0) ::_exit(kCannotStart);
  if (command == 0) become_command(command_line);
  leave_streams_to_the_command();
  wait_for_one(command);
  ::_exit(end_all(command));
}

}  // namespace

void guard_host_command(const HostCommandSetting& setting) noexcept {
  // What is sent to the host's group is not for these two: they have the command's end to see to.
  mask_signals(true);
  ::setpgid(0, 0);
  // This one watches the guardian: what a guardian that was killed leaves comes here as orphans.
  // The guardian watches it in turn.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!place_descriptors(setting)) ::_exit(kCannotStart);
  const pid_t guardian = fork_into_group();
  if (guardian < 0) ::_exit(kCannotStart);
  if (guardian == 0) guard(setting.command);
  leave_streams_to_the_command();
  ::close(kHost);
  siginfo_t ended = {};
  while (::waitid(P_PID, static_cast<id_t>(guardian), &ended, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  ::_exit(end_all(guardian));
}

}  // namespace casemate::app
