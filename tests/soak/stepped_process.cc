#include "tests/soak/stepped_process.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>

namespace casemate::soak {
namespace {

constexpr long kFollow = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;

void trace(__ptrace_request request, pid_t pid, long data) {
  if (ptrace(request, pid, nullptr, data) < 0 && errno != ESRCH) {
    throw std::system_error(errno, std::generic_category(), "ptrace");
  }
}

pid_t start(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid != 0) return pid;
  ptrace(PTRACE_TRACEME, 0, nullptr, 0);
  raise(SIGSTOP);
  try {
    body();
  } catch (const std::exception& error) {
    dprintf(2, "%s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

bool is_fork(int event) {
  return event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE;
}

class Stepper {
 public:
  Stepper(Victim victim, Step step, const std::function<void()>& body)
      : victim_(victim), left_(step.number), host_(start(body)) {}

  Stepped run() {
    int status = 0;
    waitpid(host_, &status, 0);
    trace(PTRACE_SETOPTIONS, host_,
          victim_ == Victim::host ? long{PTRACE_O_TRACESYSGOOD} : kFollow);
    if (victim_ == Victim::host) stepped_ = host_;
    go_on(host_, 0);
    while (!host_ended_ || stepped_ > 0) {
      const pid_t pid = waitpid(-1, &status, __WALL);
      if (pid < 0 && errno == EINTR) continue;
      if (pid < 0) break;
      if (WIFSTOPPED(status)) {
        stopped(pid, status);
      } else {
        ended(pid, status);
      }
    }
    return result_;
  }

 private:
  void go_on(pid_t pid, int signal) {
    trace(pid == stepped_ ? PTRACE_SYSCALL : PTRACE_CONT, pid, signal);
  }

  void stopped(pid_t pid, int status) {
    const int event = status >> 16;
    const int signal = WSTOPSIG(status);
    if (is_fork(event)) {
      unsigned long child = 0;
      ptrace(PTRACE_GETEVENTMSG, pid, nullptr, &child);
      // The host's child starts the keeper, whose own children are nobody's business here.
      if (pid == host_ && launcher_ < 0) {
        launcher_ = static_cast<pid_t>(child);
      } else if (pid == launcher_) {
        stepped_ = static_cast<pid_t>(child);
        victim_found_ = true;
      }
      return go_on(pid, 0);
    }
    if (pid == stepped_ && signal == (SIGTRAP | 0x80)) {
      if (left_-- > 0) return go_on(pid, 0);
      result_.killed = true;
      kill(pid, SIGKILL);
      return;
    }
    // The first stop of a process that is followed from its birth. Behind the victim's they are
    // nobody's business: another keeper, which outlives this look at them, or a thread.
    if (signal == SIGSTOP) {
      if (victim_found_ && pid != stepped_ && pid != host_) return trace(PTRACE_DETACH, pid, 0);
      if (pid == stepped_) trace(PTRACE_SETOPTIONS, pid, PTRACE_O_TRACESYSGOOD);
      return go_on(pid, 0);
    }
    go_on(pid, event != 0 || signal == SIGTRAP ? 0 : signal);
  }

  void ended(pid_t pid, int status) {
    if (pid == host_) {
      host_ended_ = true;
      result_.status = status;
      // A keeper that is not to be killed any more goes its own way.
    }
    if (pid == stepped_) stepped_ = -1;
  }

  Victim victim_;
  int left_;
  pid_t host_;
  pid_t launcher_ = -1;
  pid_t stepped_ = -1;
  bool victim_found_ = false;
  bool host_ended_ = false;
  Stepped result_;
};

}  // namespace

Stepped run_and_kill(Victim victim, Step step, const std::function<void()>& body) {
  return Stepper(victim, step, body).run();
}

bool wait_for_descendants(int seconds) {
  sigset_t child;
  sigset_t before;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &child, &before);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  bool none = false;
  while (true) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG | __WALL);
    if (pid > 0) continue;
    if (pid < 0 && errno != EINTR) {
      none = errno == ECHILD;
      break;
    }
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) break;
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec wait{.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    sigtimedwait(&child, nullptr, &wait);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return none;
}

}  // namespace casemate::soak
