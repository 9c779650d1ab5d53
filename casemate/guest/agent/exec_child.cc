// Between vfork and execve, which is all but `wait_for_order`: async-signal-safe calls only,
// nothing is allocated, and what is written to memory is written to the parent's.

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
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "casemate/guest/protocol.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

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

// What every program finds, whichever it is.
void prepare(const ChildDescriptors& descriptors, Place& place) noexcept {
  using Stage = ChildReport::Stage;
  setsid();
  reset_signals();
  umask(022);
  raise_oom_score();
  if (const int error = place.join_groups(descriptors.groups); error != 0) {
    give_up(descriptors.report, Stage::prepare, error);
  }
  if (const int error = place.become_user(); error != 0) {
    give_up(descriptors.report, Stage::prepare, error);
  }
  if (const int error = place.confine_program(); error != 0) {
    give_up(descriptors.report, Stage::prepare, error);
  }
}

[[noreturn]] void become_program(const ProgramImage& image, int directory, Input input,
                                 const ChildDescriptors& descriptors) noexcept {
  using Stage = ChildReport::Stage;
  const int report = descriptors.report;
  const int in = input == Input::piped ? descriptors.in : descriptors.no_input;
  // A program that stays has no input to be piped.
  // NOLINTNEXTLINE(clang-analyzer-unix.StdCLibraryFunctions)
  if (dup2(in, 0) < 0 || dup2(descriptors.out, 1) < 0 || dup2(descriptors.err, 2) < 0) {
    give_up(report, Stage::prepare, errno);
  }
  constexpr unsigned kHighest = std::numeric_limits<int>::max();
  if (close_range(3, kHighest, CLOSE_RANGE_CLOEXEC) != 0) give_up(report, Stage::prepare, errno);
  // As the user: a directory it may not enter is refused here.
  if (fchdir(directory) != 0) give_up(report, Stage::directory, errno);
  give_up(report, Stage::program, execute(image));
}

// Before an order's text.
struct OrderHead {
  std::uint32_t size = 0;
  Input input = Input::none;
};

// In a child of its own, which may allocate.
[[noreturn]] void wait_for_order(int order, const ChildDescriptors& descriptors,
                                 Place& place) noexcept {
  prepare(descriptors, place);
  try {
    // A change of user set it to fs.suid_dumpable.
    sys::make_undumpable();
    // The exec-init's own ends: nobody else's end may depend on this process. One that stays has no
    // input.
    std::vector<int> kept{
        0, 1, 2, descriptors.no_input, descriptors.out, descriptors.err, descriptors.report, order};
    if (descriptors.in >= 0) kept.push_back(descriptors.in);
    sys::close_all_except(kept);
    OrderHead head;
    sys::ReceivedMessage message = sys::receive_message(
        order, {reinterpret_cast<char*>(&head), sizeof head}, sys::Blocking::yes);
    if (message.bytes != sizeof head || message.descriptors.size() != 1) {
      give_up(descriptors.report, ChildReport::Stage::prepare, EPROTO);
    }
    std::string text(head.size, '\0');
    for (std::span<char> rest(text); !rest.empty();) {
      const std::size_t got = sys::receive_bytes(order, rest, sys::Blocking::yes).bytes;
      if (got == 0) give_up(descriptors.report, ChildReport::Stage::prepare, EPROTO);
      rest = rest.subspan(got);
    }
    const Exec request = decode_exec(text);
    const ProgramImage image(request.argv, request.environment);
    become_program(image, message.descriptors.front().get(), head.input, descriptors);
  } catch (const std::system_error& error) {
    give_up(descriptors.report, ChildReport::Stage::prepare, error.code().value());
  } catch (const std::exception&) {
    give_up(descriptors.report, ChildReport::Stage::prepare, ENOMEM);
  }
}

}  // namespace

pid_t start_program(const ProgramImage& image, int directory, Input input,
                    const ChildDescriptors& descriptors, Place& place) noexcept {
  // What they warn of is meant.
  // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork, clang-analyzer-unix.Vfork,
  // bugprone-unsafe-functions, cert-msc24-c, cert-msc33-c)
  const pid_t pid = vfork();
  if (pid == 0) {
    prepare(descriptors, place);
    become_program(image, directory, input, descriptors);
  }
  // NOLINTEND(clang-analyzer-security.insecureAPI.vfork, clang-analyzer-unix.Vfork,
  // bugprone-unsafe-functions, cert-msc24-c, cert-msc33-c)
  // The memory was shared, and a change of user sets it to fs.suid_dumpable.
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  return pid;
}

pid_t start_waiting_child(int order, const ChildDescriptors& descriptors, Place& place) noexcept {
  const pid_t pid = fork();
  if (pid == 0) wait_for_order(order, descriptors, place);
  return pid;
}

bool send_order(int order, std::string_view exec, int directory, Input input) noexcept try {
  const OrderHead head{static_cast<std::uint32_t>(exec.size()), input};
  sys::send_message(order, {reinterpret_cast<const char*>(&head), sizeof head}, {&directory, 1},
                    sys::Blocking::yes);
  while (!exec.empty()) {
    exec.remove_prefix(sys::send_message(order, exec, {}, sys::Blocking::yes));
  }
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace casemate::guest
