#include "apps/casemate/stop_requests.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>

namespace casemate::app {
namespace {

// In a process of its own: signals and standard output are the whole process's.
int status_of(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void wait_for_stop(const std::stop_token& token) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, token, [] { return false; });
}

int stopped_by(const std::function<void()>& cause) {
  return status_of([&] {
    StopRequests stop;
    cause();
    wait_for_stop(stop.token());
    return stop.exit_status().value_or(0);
  });
}

TEST(StopRequests, TurnsEachSignalIntoAStopAndItsExitStatus) {
  EXPECT_EQ(stopped_by([] { ::kill(::getpid(), SIGINT); }), 130);
  EXPECT_EQ(stopped_by([] { ::kill(::getpid(), SIGTERM); }), 143);
  EXPECT_EQ(stopped_by([] { ::kill(::getpid(), SIGHUP); }), 129);
}

TEST(StopRequests, StopsWhenTheReaderOfStandardOutputGoes) {
  EXPECT_EQ(status_of([] {
              std::array<int, 2> ends = {};
              if (::pipe(ends.data()) != 0) return 1;
              ::dup2(ends[1], STDOUT_FILENO);
              ::close(ends[1]);
              StopRequests stop;
              ::close(ends[0]);
              wait_for_stop(stop.token());
              return stop.exit_status().value_or(0);
            }),
            141);
}

TEST(StopRequests, ASecondSignalEndsTheProcess) {
  EXPECT_EQ(status_of([] {
              StopRequests stop;
              ::kill(::getpid(), SIGTERM);
              wait_for_stop(stop.token());
              ::kill(::getpid(), SIGINT);
              for (;;) ::pause();
              return 0;
            }),
            1000 + SIGINT);
}

TEST(StopRequests, LeavesAnIgnoredSignalIgnored) {
  EXPECT_EQ(status_of([] {
              std::signal(SIGHUP, SIG_IGN);
              StopRequests stop;
              ::kill(::getpid(), SIGHUP);
              ::kill(::getpid(), SIGTERM);
              wait_for_stop(stop.token());
              return stop.exit_status().value_or(0);
            }),
            143);
}

TEST(StopRequests, EndsQuietlyWhenNothingCame) {
  EXPECT_EQ(status_of([] {
              const StopRequests stop;
              return stop.exit_status().value_or(7);
            }),
            7);
}

}  // namespace
}  // namespace casemate::app
