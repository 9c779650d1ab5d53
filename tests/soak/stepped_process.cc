#include "tests/soak/stepped_process.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <map>
#include <set>
#include <system_error>

namespace casemate::soak {
namespace {

// Every thread of what is traced is traced from its birth.
constexpr long kStep = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE;
// And whatever else it starts, to find the keeper.
constexpr long kFollow = kStep | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;

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

bool is_birth(int event) {
  return event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE;
}

// Whether a thread that stopped at a system call has done it; else it is about to.
bool has_done_a_call(pid_t thread) {
  __ptrace_syscall_info call{};
  ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof call, &call);
  return call.op == PTRACE_SYSCALL_INFO_EXIT;
}

class Stepper {
 public:
  Stepper(Victim victim, Step step, const std::function<void()>& body)
      : victim_(victim == Victim::host ? Role::host : Role::keeper),
        last_call_(step.number),
        host_(start(body)) {
    roles_[host_] = Role::host;
  }

  Stepped run() {
    int status = 0;
    waitpid(host_, &status, 0);
    trace(PTRACE_SETOPTIONS, host_, victim_ == Role::host ? kStep : kFollow);
    go_on(host_, 0);
    while (!host_ended_ || (keeper_ > 0 && !keeper_ended_)) {
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
  enum class Role {
    // One of its threads.
    host,
    // The host's child, which starts the keeper and ends.
    launcher,
    keeper,
    // Nobody's business here: the keeper that comes after one that was killed, and all who start
    // it.
    other,
  };

  void go_on(pid_t pid, int signal) {
    const auto known = roles_.find(pid);
    const bool stepped = known != roles_.end() && known->second == victim_;
    trace(stepped ? PTRACE_SYSCALL : PTRACE_CONT, pid, signal);
  }

  Role role_of_child(pid_t parent, int event) const {
    const auto known = roles_.find(parent);
    if (known == roles_.end()) return Role::other;
    if (known->second == Role::host) {
      if (event == PTRACE_EVENT_CLONE) return Role::host;
      return launcher_ < 0 ? Role::launcher : Role::other;
    }
    return known->second == Role::launcher && keeper_ < 0 ? Role::keeper : Role::other;
  }

  void born(pid_t parent, int event) {
    unsigned long number = 0;
    ptrace(PTRACE_GETEVENTMSG, parent, nullptr, &number);
    const auto child = static_cast<pid_t>(number);
    const Role role = role_of_child(parent, event);
    roles_[child] = role;
    if (role == Role::launcher) launcher_ = child;
    if (role == Role::keeper) keeper_ = child;
    if (unknown_.erase(child) > 0) begin(child);
  }

  // At its very first stop.
  void begin(pid_t pid) {
    begun_.insert(pid);
    const Role role = roles_.at(pid);
    if (role == Role::other) return trace(PTRACE_DETACH, pid, 0);
    // Its sandboxes are not followed.
    if (role == Role::keeper) trace(PTRACE_SETOPTIONS, pid, PTRACE_O_TRACESYSGOOD);
    go_on(pid, 0);
  }

  void stopped(pid_t pid, int status) {
    const int event = status >> 16;
    const int signal = WSTOPSIG(status);
    if (is_birth(event)) {
      born(pid, event);
      return go_on(pid, 0);
    }
    if (signal == SIGSTOP && pid != host_ && !begun_.contains(pid)) {
      if (roles_.contains(pid)) return begin(pid);
      // Its parent's stop, which tells what it is, comes next.
      unknown_.insert(pid);
      return;
    }
    if (signal == (SIGTRAP | 0x80) && !result_.killed) {
      if (has_done_a_call(pid)) ++result_.calls;
      if (result_.calls < last_call_) return go_on(pid, 0);
      result_.killed = true;
      kill(victim_ == Role::host ? host_ : pid, SIGKILL);
      return;
    }
    go_on(pid, event != 0 || (signal & 0x7f) == SIGTRAP ? 0 : signal);
  }

  void ended(pid_t pid, int status) {
    if (pid == host_) {
      host_ended_ = true;
      result_.status = status;
      // A keeper that is not to be killed any more goes its own way.
    }
    if (pid == keeper_) keeper_ended_ = true;
  }

  Role victim_;
  int last_call_;
  pid_t host_;
  pid_t launcher_ = -1;
  pid_t keeper_ = -1;
  bool host_ended_ = false;
  bool keeper_ended_ = false;
  std::map<pid_t, Role> roles_;
  std::set<pid_t> begun_;
  // Who stopped for the first time before it is known what they are.
  std::set<pid_t> unknown_;
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
