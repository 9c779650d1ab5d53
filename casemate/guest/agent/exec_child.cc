// Between vfork and execve: async-signal-safe calls only, nothing is allocated, and what is written
// to memory is written to the parent's.

#include "casemate/guest/agent/exec_child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <limits>

namespace casemate::guest {
namespace {

[[noreturn]] void give_up(int report, ChildReport::Stage stage, int error) {
  const ChildReport text{error, stage};
  // Less than PIPE_BUF: whole or not at all.
  [[maybe_unused]] const ssize_t written = write(report, &text, sizeof text);
  _exit(127);
}

// By number: glibc keeps 32 and 33 to itself, and its posix_spawn, by which the first of our
// processes is started, leaves them ignored.
void reset_signals() {
  struct KernelAction {
    void* handler = nullptr;  // SIG_DFL
    unsigned long flags = 0;
    void* restorer = nullptr;
    std::uint64_t mask = 0;
  };
  const KernelAction action;
  for (int number = 1; number < NSIG; ++number) {
    syscall(SYS_rt_sigaction, number, &action, nullptr, sizeof action.mask);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The kernel's first choice when memory runs out, unless the program lowers it again: without
// CAP_SYS_RESOURCE there is no floor but what the agent has itself, and then the kernel goes by
// size, which is the program's too. May fail where /proc is read-only. The files in /proc of a
// process that is not dumpable belong to the machine's root, not to a user namespace's: so it is
// dumpable for a moment, when nobody who could use that is in its pid namespace yet.
void raise_oom_score() {
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    [[maybe_unused]] const ssize_t written = write(fd, "1000", 4);
    close(fd);
  }
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

// Tries each candidate. A place without the program is passed over; one where it may not be
// executed is remembered, as a shell does.
int execute(const ProgramImage& image) {
  int remembered = ENOENT;
  for (const std::string& candidate : image.candidates()) {
    execve(candidate.c_str(), image.argv(), image.environment());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    if (errno != EACCES) return errno;
    remembered = EACCES;
  }
  return remembered;
}

[[noreturn]] void become_program(const ProgramImage& image, const ChildDescriptors& descriptors,
                                 Place& place) noexcept {
  using Stage = ChildReport::Stage;
  const int report = descriptors.report;
  setsid();
  reset_signals();
  umask(022);
  raise_oom_score();
  if (const int error = place.join_groups(descriptors.groups); error != 0) {
    give_up(report, Stage::prepare, error);
  }
  if (dup2(descriptors.in, 0) < 0 || dup2(descriptors.out, 1) < 0 || dup2(descriptors.err, 2) < 0) {
    give_up(report, Stage::prepare, errno);
  }
  constexpr unsigned kHighest = std::numeric_limits<int>::max();
  if (close_range(3, kHighest, CLOSE_RANGE_CLOEXEC) != 0) give_up(report, Stage::prepare, errno);
  if (const int error = place.become_user(); error != 0) give_up(report, Stage::prepare, error);
  // As the user: a directory it may not enter is refused here.
  if (fchdir(descriptors.directory) != 0) give_up(report, Stage::directory, errno);
  if (const int error = place.confine_program(); error != 0) {
    give_up(report, Stage::prepare, error);
  }
  give_up(report, Stage::program, execute(image));
}

}  // namespace

pid_t start_program(const ProgramImage& image, const ChildDescriptors& descriptors,
                    Place& place) noexcept {
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): what it warns of is meant.
  const pid_t pid = vfork();
  if (pid == 0) become_program(image, descriptors, place);
  // The memory was shared, and a change of user sets it to fs.suid_dumpable.
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  return pid;
}

}  // namespace casemate::guest
