// The next call of a sandbox, opened before anybody wants it (guest/ready_call.h).

#include <elf.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
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
  std::vector<pid_t> chain() const { return chain_of(agent()); }
  static std::vector<pid_t> chain_of(pid_t agent) {
    std::vector<pid_t> found{agent};
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
  bool has_processes(std::size_t count) const { return has_processes(agent(), count); }
  static bool has_processes(pid_t agent, std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (family_of(agent).size() != count || chain_of(agent).size() != count) {
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

// A program of so few pages that the kernel, out of memory, ends everything else first: it has a
// file without a name take all there is.
std::string small_eater() {
  // memfd_create(argv's count, 0), and for ever fallocate(it, 0, 0, 1 GiB).
  const std::string code(
      "\xb8\x3f\x01\x00\x00\x48\x89\xe7\x31\xf6\x0f\x05\x89\xc3"
      "\xb8\x1d\x01\x00\x00\x89\xdf\x31\xf6\x31\xd2\x41\xba\x00\x00\x00\x40\x0f\x05\xeb\xeb",
      35);
  constexpr std::uint64_t kBase = 0x400000;
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_ident[EI_VERSION] = EV_CURRENT;
  head.e_type = ET_EXEC;
  head.e_machine = EM_X86_64;
  head.e_version = EV_CURRENT;
  head.e_phoff = sizeof head;
  head.e_ehsize = sizeof head;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = 1;
  head.e_entry = kBase + sizeof head + sizeof(Elf64_Phdr);
  Elf64_Phdr all{};
  all.p_type = PT_LOAD;
  all.p_flags = PF_R | PF_X;
  all.p_vaddr = kBase;
  all.p_filesz = all.p_memsz = sizeof head + sizeof all + code.size();
  all.p_align = 0x1000;
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(&all), sizeof all);
  return bytes + code;
}

// What waits in one is a process of the sandbox's like all others.
TEST_F(ReadyCalls, ThatLostTheirProcessForWantOfMemoryTellNoProgramOfIt) {
#ifndef __x86_64__
  GTEST_SKIP() << "the program is of another machine's code";
#endif
  SandboxSpec small = spec();
  small.resources.memory_bytes = stated(64 * kMiB);
  small.resources.disk_bytes = stated(1 * kMiB);
  for (const char* line : {"exit 3", "kill -9 $$"}) {
    const auto sandbox = acquire(key("small"), small);
    for (int i = 0; i < 2; ++i) sandbox->exec(shell("true"), {});
    ASSERT_TRUE(has_processes(kProcesses));
    const pid_t waiting = chain().at(3);
    const std::vector<std::string> there = calls();
    ASSERT_EQ(there.size(), 1U);
    const auto other = sandbox->open_call({.id = "0123456789ab"}, {});
    other->write_file("eater", small_eater(), other->directory() + "/work", {});
    EXPECT_EQ(other->exec(shell("chmod +x eater && exec ./eater"), {}).outcome,
              Outcome::out_of_memory);
    ASSERT_TRUE(wait_until_gone(waiting));
    EXPECT_TRUE(other->close());
    const auto call = sandbox->open_call({}, {});
    EXPECT_EQ(call->id(), there.at(0));
    const ExecResult result = call->exec(shell(line), {});
    EXPECT_NE(result.outcome, Outcome::out_of_memory);
    EXPECT_EQ(result.limit, std::nullopt) << line;
    EXPECT_EQ(backend().dispose(key("small")), 1);
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

// Nobody asks it any more, and its handle is kept.
TEST_F(ReadyCalls, OfASandboxThatIsGoneLeaveTheirPlaceToAnother) {
  std::vector<std::shared_ptr<Sandbox>> sandboxes;
  for (int i = 0; i < 33; ++i) sandboxes.push_back(acquire(key(std::to_string(i)), spec()));
  for (const auto& sandbox : sandboxes) {
    for (int call = 0; call < 2; ++call) sandbox->exec(shell("true"), {});
  }
  const pid_t gone = sandboxes.front()->first_process().value();
  const pid_t last = sandboxes.back()->first_process().value();
  ASSERT_TRUE(has_processes(last, 1)) << "all places are taken";
  ASSERT_TRUE(has_processes(gone, kProcesses));
  ASSERT_EQ(kill(gone, SIGKILL), 0);
  ASSERT_TRUE(wait_until_gone(gone));
  EXPECT_EQ(sandboxes.back()->exec(shell("exit 3"), {}).exit_code, 3);
  EXPECT_TRUE(has_processes(last, kProcesses));
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
