#include "casemate/guest/agent/exec_children.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>

#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"

namespace casemate::guest {
namespace {

using sys::SteadyTime;

// A process that SIGKILL does not end in this time hangs in the kernel: its end is not known.
constexpr auto kReapPatience = std::chrono::seconds(5);

sys::UniqueFd watch_children() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  if (sigprocmask(SIG_BLOCK, &children, nullptr) != 0) sys::throw_errno("sigprocmask");
  // Somebody may have left it ignored, and then there would be nothing to reap.
  static_cast<void>(std::signal(SIGCHLD, SIG_DFL));
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
  sys::UniqueFd watch(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!watch) sys::throw_errno("signalfd");
  return watch;
}

}  // namespace

ExecChildren::ExecChildren(Place& place) : place_(place), event_(watch_children()) {}

void ExecChildren::drop_program() noexcept {
  if (program_ > 0) {
    kill(program_, SIGKILL);
    while (waitpid(program_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  program_ = -1;
  program_status_.reset();
}

bool ExecChildren::reap() {
  std::array<signalfd_siginfo, 8> ignored;
  while (read(event_.get(), ignored.data(), sizeof ignored) > 0) {
  }
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == 0) return true;
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return false;
    if (pid == program_) {
      program_status_ = status;
      program_ = -1;
    }
  }
}

bool ExecChildren::end_all() noexcept {
  const SteadyTime until = SteadyTime::clock::now() + kReapPatience;
  while (true) {
    place_.kill_exec_scope();
    try {
      if (!reap()) return true;
      std::array<pollfd, 1> entries{pollfd{event_.get(), POLLIN, 0}};
      if (sys::poll_until(entries, until) == 0) return false;
    } catch (const std::exception&) {
      return false;
    }
  }
}

}  // namespace casemate::guest
