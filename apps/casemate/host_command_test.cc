#include "apps/casemate/host_command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/no_throw.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;
using End = HostCommandResult::End;

constexpr std::size_t kRoom = 8 * 1024 * 1024;

class HostCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
    std::string pattern = ::testing::TempDir() + "casemate-command-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
    std::filesystem::remove_all(directory_);
  }

  static HostCommandResult run(const std::string& command, std::string_view input = {},
                               std::size_t room = kRoom, const std::stop_token& stop = {}) {
    return run_host_command(command, input, room, stop);
  }

  // A FIFO whose reading end sees the end when the last process that has it open for writing ends.
  std::string make_fifo(const std::string& name) const {
    const std::string path = directory_ / name;
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  std::filesystem::path directory_;
};

std::stop_source requested() {
  const std::stop_source stop;
  stop.request_stop();
  return stop;
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// Reads until every writer has gone; empty when that takes too long.
std::optional<std::string> read_to_the_end(int fd) {
  std::string text;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    std::array<pollfd, 1> entries = {pollfd{fd, POLLIN, 0}};
    if (sys::poll_until(entries, limit) == 0) return std::nullopt;
    std::array<char, 256> piece;
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
}

TEST_F(HostCommand, GetsTheInputAndItsOutputComesBack) {
  const HostCommandResult result = run("cat; echo aside >&2; exit 3", "{\"a\": 1}");
  EXPECT_EQ(result.end, End::exited);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "{\"a\": 1}");
  EXPECT_EQ(result.errors, "aside\n");
}

TEST_F(HostCommand, PassesMoreThanThePipesHoldBothWays) {
  const std::string input(4 * 1024 * 1024, 'x');
  EXPECT_EQ(run("tee /dev/stderr", input).output, input);
}

TEST_F(HostCommand, MayLeaveItsInputUnread) {
  const HostCommandResult result = run("exec <&-; echo 1", std::string(1024 * 1024, 'x'));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output, "1\n");
}

TEST_F(HostCommand, ReportsASignalAsAShellDoes) { EXPECT_EQ(run("kill -9 $$").status, 137); }

TEST_F(HostCommand, MayPrintUpToTheBoundAndIsEndedByOneByteMore) {
  EXPECT_EQ(run("printf 12345", {}, 5).end, End::exited);
  EXPECT_EQ(run("printf 12345", {}, 5).output, "12345");
  EXPECT_EQ(run("printf 123456", {}, 5).end, End::too_much);
  EXPECT_EQ(run("yes", {}, 100'000).end, End::too_much);
}

TEST_F(HostCommand, MayTalkOnItsErrorsWithoutBound) {
  const HostCommandResult result = run("head -c 3000000 /dev/zero >&2; echo 1");
  EXPECT_EQ(result.output, "1\n");
  EXPECT_EQ(result.errors.size(), kKeptErrorBytes);
}

TEST_F(HostCommand, IsKilledWithItsWholeGroupByAStop) {
  const std::string path = make_fifo("alive");
  const sys::UniqueFd alive(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::stop_source stop;
  std::jthread stopper([&] {
    std::array<pollfd, 1> entries = {pollfd{alive.get(), POLLIN, 0}};
    sys::poll_until(entries, std::chrono::steady_clock::now() + std::chrono::seconds(20));
    stop.request_stop();
  });
  const HostCommandResult result = run(
      "exec 9>" + path + "; (trap '' TERM INT HUP; sleep 60 & sleep 60) & echo up >&9; sleep 60",
      {}, kRoom, stop.get_token());
  EXPECT_EQ(result.end, End::stopped);
  EXPECT_EQ(result.status, 137);
  stopper.join();
  EXPECT_EQ(read_to_the_end(alive.get()), "up\n");
}

TEST_F(HostCommand, IsNotBegunForLongByAStopThatWasThereBefore) {
  const std::stop_source stop = requested();
  EXPECT_EQ(run("sleep 60", {}, kRoom, stop.get_token()).end, End::stopped);
}

TEST_F(HostCommand, TakesItsBackgroundAlongWhenItEnds) {
  const std::string path = make_fifo("alive");
  const sys::UniqueFd alive(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  // The one left behind holds the output open as well.
  const HostCommandResult result = run("exec 9>" + path + "; echo up >&9; sleep 60 & echo 7");
  EXPECT_EQ(result.end, End::exited);
  EXPECT_EQ(result.output, "7\n");
  EXPECT_EQ(read_to_the_end(alive.get()), "up\n");
}

TEST_F(HostCommand, TakesAlongWhatLeftItsGroupWhenItEnds) {
  const std::string path = make_fifo("alive");
  const sys::UniqueFd alive(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  // Its own session, a session within that, and enough of them that one listing does not do.
  const HostCommandResult result =
      run("exec 9>" + path +
          "; echo up >&9; setsid sh -c 'setsid sleep 60 & sleep 60' & "
          "i=0; while [ $i -lt 700 ]; do setsid sleep 60 & i=$((i+1)); done; "
          "while [ $(ps -o sid= -p $!) != $! ]; do :; done; echo 7");
  EXPECT_EQ(result.end, End::exited);
  EXPECT_EQ(result.output, "7\n");
  EXPECT_EQ(read_to_the_end(alive.get()), "up\n");
}

TEST_F(HostCommand, TakesAlongWhatLeftItsGroupWhenItIsStopped) {
  const std::string path = make_fifo("alive");
  const sys::UniqueFd alive(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::stop_source stop;
  std::jthread stopper([&] {
    std::array<pollfd, 1> entries = {pollfd{alive.get(), POLLIN, 0}};
    sys::poll_until(entries, std::chrono::steady_clock::now() + std::chrono::seconds(20));
    stop.request_stop();
  });
  // `timeout` makes a group of its own.
  const HostCommandResult result =
      run("exec 9>" + path + "; timeout 60 sh -c 'echo up >&9; sleep 60'; echo 1", {}, kRoom,
          stop.get_token());
  EXPECT_EQ(result.end, End::stopped);
  stopper.join();
  EXPECT_EQ(read_to_the_end(alive.get()), "up\n");
}

TEST_F(HostCommand, HasAGroupDefaultSignalsAndNoDescriptorOfOurs) {
  const sys::UniqueFd inheritable(::open("/dev/null", O_RDONLY));  // without close-on-exec
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const HostCommandResult result = run(
      "ps -o pgid= -p $$; echo $$; ls /proc/$$/fd; exec grep -E 'SigBlk|SigIgn' /proc/self/status");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto first = result.output.find_first_not_of(' ');
  const auto line = result.output.substr(first, result.output.find('\n', first) - first);
  EXPECT_THAT(result.output,
              HasSubstr(line + "\n" + line + "\n0\n1\n2\nSigBlk:\t0000000000000000\n"));
  EXPECT_NE(line, std::to_string(::getpgrp()));
  const auto ignored =
      std::stoull(result.output.substr(result.output.rfind('\t') + 1), nullptr, 16);
  EXPECT_EQ(ignored & (1ULL << (SIGPIPE - 1) | 1ULL << (SIGXFSZ - 1)), 0U);
}

TEST_F(HostCommand, LeavesNoDescriptorOpen) {
  const std::size_t before = open_descriptors();
  const std::stop_source stop = requested();
  for (int i = 0; i < 20; ++i) {
    run("cat", "x");
    run("yes", {}, 10);
    run("sleep 60", {}, kRoom, stop.get_token());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(HostCommand, RunsOnManyThreadsAtOnce) {
  std::vector<std::jthread> threads;
  std::array<std::string, 16> outputs;
  threads.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) outputs[i] += run("cat", std::to_string(i)).output;
    });
  }
  threads.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::string expected;
    for (int round = 0; round < 10; ++round) expected += std::to_string(i);
    EXPECT_EQ(outputs[i], expected);
  }
}

// The first child that a process has by now, waited for.
pid_t child_of(pid_t process) {
  const std::string id = std::to_string(process);
  pid_t child = 0;
  while (child == 0) {
    std::ifstream list("/proc/" + id + "/task/" + id + "/children");
    list >> child;
  }
  return child;
}

// What a command leaves when one of the two that see to its end is killed: nothing. `which` is
// told the process that stands above the command, and that one's parent.
class HostCommandGuard : public HostCommand {
 protected:
  void kill_one(const std::function<pid_t(pid_t guardian, pid_t watcher)>& which) {
    const std::string path = make_fifo("alive");
    const sys::UniqueFd alive(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    // A background of its own session, and one of the command's; all have the FIFO open.
    const std::string command = "exec 9>" + path +
                                "; setsid sh -c 'setsid sleep 60 & sleep 60' & "
                                "(trap '' TERM INT HUP; sleep 60) & "
                                "echo $PPID >&9; sleep 60";
    const auto kill_it = [&] {
      std::array<pollfd, 1> entries = {pollfd{alive.get(), POLLIN, 0}};
      sys::poll_until(entries, std::chrono::steady_clock::now() + std::chrono::seconds(20));
      std::array<char, 32> text{};
      ASSERT_GT(::read(alive.get(), text.data(), text.size() - 1), 0);
      const auto guardian = static_cast<pid_t>(std::stol(text.data()));
      const std::string id = std::to_string(guardian);
      std::ifstream status("/proc/" + id + "/stat");
      std::string name;
      std::string state;
      pid_t watcher = 0;
      status >> name >> name >> state >> watcher;
      ASSERT_EQ(child_of(watcher), guardian);
      ASSERT_EQ(::kill(which(guardian, watcher), SIGKILL), 0);
    };
    std::jthread killer([&] { no_throw(kill_it); });
    const HostCommandResult result = run(command);
    EXPECT_EQ(result.end, End::exited);
    EXPECT_EQ(result.status, 137);
    killer.join();
    EXPECT_EQ(read_to_the_end(alive.get()), "");
  }
};

TEST_F(HostCommandGuard, ThatIsKilledLeavesNothingOfItsCommand) {
  kill_one([](pid_t guardian, pid_t) { return guardian; });
}

TEST_F(HostCommandGuard, WhoseWatcherIsKilledLeavesNothingOfItsCommand) {
  kill_one([](pid_t, pid_t watcher) { return watcher; });
}

TEST_F(HostCommand, EndsWithTheHostHoweverThatEnds) {
  const std::string path = make_fifo("alive");
  const sys::UniqueFd alive(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const pid_t host = ::fork();
  if (host == 0) {
    run("exec 9>" + path + "; sleep 60 & echo up >&9; sleep 60");
    ::_exit(0);
  }
  std::array<pollfd, 1> entries = {pollfd{alive.get(), POLLIN, 0}};
  EXPECT_EQ(sys::poll_until(entries, std::chrono::steady_clock::now() + std::chrono::seconds(20)),
            1);
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
  EXPECT_EQ(read_to_the_end(alive.get()), "up\n");
}

}  // namespace
}  // namespace casemate::app
