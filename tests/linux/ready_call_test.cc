// The next call of a sandbox, opened before anybody wants it (guest/ready_call.h).

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/linux/linux_test.h"

namespace casemate::linux_tests {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The agent, a call's process, the init of its exec, and what will become a program.
constexpr std::size_t kProcesses = 4;

class ReadyCalls : public LinuxTest {
 protected:
  // Without a group that counts its programs' processes a sandbox has none.
  void SetUp() override {
    NEEDS_CONTROL_GROUPS();
    LinuxTest::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) LinuxTest::TearDown();
  }

  pid_t agent() const { return agent_of(sandbox_directories().at(0)); }

  // The agent, its only child, the only child of that and so on.
  std::vector<pid_t> chain() const {
    std::vector<pid_t> found{agent()};
    while (true) {
      const std::string self = std::to_string(found.back());
      std::ifstream children("/proc/" + self + "/task/" + self + "/children");
      pid_t child = 0;
      pid_t other = 0;
      if (!(children >> child) || children >> other) return found;
      found.push_back(child);
    }
  }

  // That so many there are and no more. Which processes a sandbox has is told to nobody, so it is
  // looked at again.
  bool has_processes(std::size_t count) const {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (family_of(agent()).size() != count || chain().size() != count) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  void call_twice() {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(output(shell("echo hello")), "hello\n");
    ASSERT_TRUE(has_processes(kProcesses));
  }

  // Those that have a directory in the sandbox now.
  std::vector<std::string> calls() const {
    std::vector<std::string> found;
    const fs::path root = "/proc/" + std::to_string(agent()) + "/root/workspace";
    for (const auto& entry : fs::directory_iterator(root)) {
      found.push_back(entry.path().filename());
    }
    return found;
  }
};

TEST_F(ReadyCalls, AreThereFromTheSecondCallOnAndAreTheNext) {
  output(shell("true"));
  ASSERT_TRUE(has_processes(1)) << "whoever calls once pays for no other";
  call_twice();
  const std::vector<std::string> there = calls();
  ASSERT_EQ(there.size(), 1U);
  const auto call = sandbox().open_call({}, {});
  EXPECT_EQ(call->id(), there.at(0));
  EXPECT_EQ(call->exec(shell("pwd; ls -A; ls -A /tmp; cat"), {}).stdout,
            call->directory() + "/work\n");
  EXPECT_NE(sandbox().open_call({}, {})->id(), there.at(0));
  EXPECT_TRUE(call->close());
}

TEST_F(ReadyCalls, ThatLostAProcessAreMissedByNobody) {
  for (std::size_t killed = 1; killed < kProcesses; ++killed) {
    call_twice();
    const pid_t pid = chain().at(killed);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    // The init of its exec looks after the last one only when there is a program for it.
    ASSERT_TRUE(killed == 3 ? wait_until_gone(pid) : has_processes(killed)) << killed;
    const ExecResult result = run(shell("echo once >> ~/runs; cat ~/runs; exit 3"));
    EXPECT_EQ(result.exit_code, 3) << killed << result.stderr;
    EXPECT_EQ(std::ranges::count(result.stdout, '\n'), static_cast<long>(killed));
    EXPECT_TRUE(result.stopped_known);
  }
}

TEST_F(ReadyCalls, AreNoReasonToCallASandboxBusy) {
  call_twice();
  SandboxSpec other = spec();
  other.resources.open_files = stated(77);
  const auto replaced = acquire(key(), other);
  EXPECT_EQ(replaced->exec(shell("ulimit -n"), {}).stdout, "77\n");
  EXPECT_EQ(backend().dispose(key()), 1);
}

TEST_F(ReadyCalls, AreTheirParentsInAForkedChild) {
  call_twice();
  const std::vector<std::string> there = calls();
  ASSERT_EQ(there.size(), 1U);
  const pid_t child = fork();
  if (child == 0) {
    const bool own = sandbox().open_call({}, {})->id() != there.at(0);
    const bool runs = run(shell("exit 5")).exit_code == 5;
    _exit(own && runs ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sandbox().open_call({}, {})->id(), there.at(0));
}

// What was refused to one program is not told of the next, however long its process was there.
TEST_F(ReadyCalls, KnowNothingOfWhatWasRefusedBefore) {
  SandboxSpec small = spec();
  small.resources.pids = stated(8);
  const auto sandbox = acquire(key("small"), small);
  for (int i = 0; i < 4; ++i) {
    const ExecResult over = sandbox->exec(
        python("import os, time\nfor i in range(9):\n  if os.fork() == 0: time.sleep(60)"), {});
    EXPECT_EQ(over.limit, Limit::pids) << over.stderr;
    EXPECT_EQ(sandbox->exec(shell("exit 1"), {}).limit, std::nullopt);
  }
}

// What they need is kept for them, and no opening that failed has any of it.
class CallsInAFullDisk : public LinuxTest {};

TEST_F(CallsInAFullDisk, AreHadAgainAndAgain) {
  SandboxSpec small = spec();
  small.resources.disk_inodes = stated(200);
  const auto sandbox = acquire(key("small"), small);
  const ExecRequest fill = shell(
      "mkdir -p /workspace/d; i=0; while echo > /workspace/d/$$.$i; do i=$((i+1)); done; exit 4");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sandbox->exec(fill, {}).exit_code, 4) << i;
  EXPECT_EQ(sandbox->exec(shell("rm -r /workspace/d; echo room > /workspace/d"), {}).exit_code, 0);
}

// Of descriptors, of which an application has some hundreds for all that it does.
TEST_F(ReadyCalls, AreHadBySoManySandboxesAtATime) {
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  std::vector<std::shared_ptr<Sandbox>> sandboxes;
  for (int i = 0; i < 40; ++i) {
    sandboxes.push_back(acquire(key(std::to_string(i)), spec()));
    sandboxes.back()->exec(shell("true"), {});
  }
  const auto before = descriptors();
  for (const auto& sandbox : sandboxes) sandbox->exec(shell("true"), {});
  const auto each = (descriptors() - before) / 32;
  EXPECT_GE(each, 2);
  EXPECT_EQ(descriptors(), before + 32 * each);
  for (const auto& sandbox : sandboxes) EXPECT_EQ(sandbox->exec(shell("exit 3"), {}).exit_code, 3);
  EXPECT_EQ(descriptors(), before + 32 * each);
}

TEST_F(ReadyCalls, AreOneCallersEach) {
  sandbox();
  std::vector<std::jthread> threads;
  std::vector<std::string> seen(4);
  for (std::string& all : seen) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) all += run(shell("ls -A; echo x > file; cat file")).stdout;
    });
  }
  threads.clear();
  std::string expected;
  for (int i = 0; i < 25; ++i) expected += "x\n";
  for (const std::string& all : seen) EXPECT_EQ(all, expected);
}

}  // namespace
}  // namespace casemate::linux_tests
