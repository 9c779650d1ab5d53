#include "casemate/sys/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "casemate/sys/socket.h"

namespace casemate::sys {
namespace {

using namespace std::chrono_literals;

int status_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

TEST(Process, AProcessDescriptorTellsTheEnd) {
  auto [ours, theirs] = socket_pair(SocketType::stream);
  const pid_t pid = fork();
  if (pid == 0) {
    char byte = 0;
    ours.reset();
    _exit(read(theirs.get(), &byte, 1) == 0 ? 7 : 8);
  }
  const UniqueFd process = open_pid(pid);
  EXPECT_EQ(fcntl(process.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(has_ended(process.get()));
  EXPECT_FALSE(wait_ended(process.get(), std::chrono::steady_clock::now() + 1ms));
  theirs.reset();
  ours.reset();
  EXPECT_TRUE(wait_ended(process.get(), std::nullopt));
  EXPECT_TRUE(has_ended(process.get()));
  EXPECT_EQ(WEXITSTATUS(status_of(pid)), 7);
  send_signal(process.get(), SIGKILL);  // quiet: it has ended
}

TEST(Process, ASignalGoesToTheProcess) {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  const UniqueFd process = open_pid(pid);
  send_signal(process.get(), SIGKILL);
  EXPECT_TRUE(wait_ended(process.get(), std::nullopt));
  EXPECT_EQ(WTERMSIG(status_of(pid)), SIGKILL);
  try {
    open_pid(pid);
    ADD_FAILURE() << "a process that is gone was opened";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ESRCH);
  }
}

TEST(Process, AChildDiesWithItsParent) {
  int channel[2];
  ASSERT_EQ(pipe2(channel, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const UniqueFd self = open_pid(getpid());
    const pid_t child = fork();
    if (child == 0) {
      die_with_parent(self.get());
      const pid_t own = getpid();
      static_cast<void>(!write(channel[1], &own, sizeof own));
      while (true) pause();
    }
    while (true) pause();
  }
  pid_t child = -1;
  ASSERT_EQ(read(channel[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const UniqueFd process = open_pid(child);
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  EXPECT_TRUE(wait_ended(process.get(), std::chrono::steady_clock::now() + 20s));
  status_of(parent);
  close(channel[0]);
  close(channel[1]);
}

TEST(Process, AChildWhoseParentIsGoneAlreadyEndsAtOnce) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  const UniqueFd process = open_pid(gone);
  status_of(gone);
  const pid_t child = fork();
  if (child == 0) {
    die_with_parent(process.get());
    _exit(9);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0);
}

TEST(Process, ClosesAllButWhatIsKept) {
  const pid_t child = fork();
  if (child == 0) {
    const int low = open("/dev/null", O_RDONLY);
    const int kept = fcntl(low, F_DUPFD, 50);
    const int high = fcntl(low, F_DUPFD, 60);
    const int keep[] = {kept, 2};  // in any order
    close_all_except(keep);
    const bool right = fcntl(low, F_GETFD) < 0 && fcntl(high, F_GETFD) < 0 &&
                       fcntl(0, F_GETFD) < 0 && fcntl(kept, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0;
    close_from(kept);
    _exit(right && fcntl(kept, F_GETFD) < 0 && fcntl(2, F_GETFD) >= 0 ? 0 : 1);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0);
}

TEST(Process, HasTheNumberThatProcHasForIt) {
  const UniqueFd self = open_pid(getpid());
  EXPECT_EQ(number_in_proc(self.get()), getpid());
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  const UniqueFd ended = open_pid(gone);
  status_of(gone);
  EXPECT_EQ(number_in_proc(ended.get()), std::nullopt);
}

TEST(Process, InAPidNamespaceBelowThatOfProcItHasTheNumberOfThere) {
  if (geteuid() != 0) GTEST_SKIP() << "a pid namespace needs root";
  int channel[2];
  ASSERT_EQ(pipe2(channel, O_CLOEXEC), 0);
  const pid_t child = clone_process(CLONE_NEWPID);
  if (child == 0) {
    // Number 1 here and for fork, but the mounted /proc is the parent's.
    const pid_t number = getpid() == 1 ? number_in_proc(open_pid(1).get()).value_or(0) : -1;
    static_cast<void>(!write(channel[1], &number, sizeof number));
    _exit(0);
  }
  pid_t number = 0;
  ASSERT_EQ(read(channel[0], &number, sizeof number), static_cast<ssize_t>(sizeof number));
  EXPECT_EQ(number, child);
  status_of(child);
  close(channel[0]);
  close(channel[1]);
}

TEST(Process, AnUndumpableProcessSaysSo) {
  const pid_t child = fork();
  if (child == 0) {
    make_undumpable();
    _exit(prctl(PR_GET_DUMPABLE));
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0);
}

TEST(Process, ACloneIsAChildLikeAnyOther) {
  const pid_t child = clone_process(0);
  if (child == 0) _exit(5);
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 5);
}

}  // namespace
}  // namespace casemate::sys
