// What waits in a warm pool may be killed, replaced or late: nobody notices but by the time it
// takes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "casemate/sys/unique_fd.h"
#include "tests/linux/copied_program.h"
#include "tests/linux/warm_pool.h"
#include "tests/support/scratch.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_all("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = stat.rfind(')');
  return end == std::string::npos ? -1 : std::stoi(stat.substr(end + 4));
}

class WarmPoolFailureTest : public WarmPoolTest {
 protected:
  // The one interpreter that waits in that sandbox, as this machine numbers it.
  pid_t held_interpreter(const Sandbox& sandbox) {
    pid_t agent = -1;
    for (const fs::path& directory : sandbox_directories()) {
      if (read_all(directory / "record.json").find(sandbox.info().id) != std::string::npos) {
        agent = agent_of(directory);
      }
    }
    std::vector<pid_t> found;
    for (const auto& [pid, start] : family_of(agent)) {
      const std::string line = read_all("/proc/" + std::to_string(pid) + "/cmdline");
      if (line.ends_with(program().path + '\0')) found.push_back(pid);
    }
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? -1 : found.front();
  }

  static void end(pid_t pid) {
    ASSERT_GT(pid, 1);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_TRUE(wait_until_gone(pid));
  }

  // The interpreter, the init of its exec, the process of its call.
  static pid_t ancestor(pid_t pid, int generations) {
    for (; generations > 0; --generations) pid = parent_of(pid);
    return pid;
  }
};

constexpr char kOnce[] =
    "import os\n"
    "open('/home/user/runs', 'a').write('x')\n"
    "print(len(open('/home/user/runs').read()))\n";

TEST_F(WarmPoolFailureTest, AnInterpreterThatWasKilledIsReplacedByAFreshOneUnseen) {
  const auto held = pooled_sandbox();
  for (int generation = 0; generation < 3; ++generation) {
    wait_until_warm();
    end(ancestor(held_interpreter(*held), generation));
    const ExecResult result = run_program(*held, kOnce);
    EXPECT_EQ(result.outcome, Outcome::exited) << generation;
    EXPECT_EQ(result.stdout, std::to_string(generation + 1) + "\n") << generation << result.stderr;
    wait_until_warm();
    EXPECT_TRUE(kill(held_interpreter(*held), 0) == 0) << "another one waits";
  }
}

TEST_F(WarmPoolFailureTest, OneThatIsKilledWhenItsProgramIsThereRunsAfreshAndOnce) {
  const auto held = pooled_sandbox();
  // The process of the call would be missed by any program, held or not.
  for (int generation = 0; generation < 2; ++generation) {
    wait_until_warm();
    const pid_t interpreter = held_interpreter(*held);
    const auto call = held->open_call({.expects = program()}, {});
    call->write_file(program().path, std::string_view(kOnce), call->directory(), {});
    end(ancestor(interpreter, generation));
    const ExecResult result = call->exec(request_for(*call), {});
    EXPECT_EQ(result.outcome, Outcome::exited) << generation;
    EXPECT_EQ(result.stdout, std::to_string(generation + 1) + "\n") << generation << result.stderr;
  }
}

TEST_F(WarmPoolFailureTest, AFullDiskIsToldAsWithoutAPool) {
  const auto held = pooled_sandbox();
  const ExecResult fill =
      held->exec(shell("cat /dev/zero > /home/user/fill 2> /dev/null; true"), {});
  EXPECT_EQ(fill.exit_code, 0);
  wait_until_warm();
  const auto call = held->open_call({.expects = program()}, {});
  std::string large = "#" + std::string(30000, 'x') + "\nprint(1)\n";
  try {
    call->write_file(program().path, large, call->directory(), {});
    call->exec(request_for(*call), {});
    ADD_FAILURE() << "a program was run that cannot have been written";
  } catch (const SandboxFileError& refusal) {
    EXPECT_EQ(refusal.error_number(), ENOSPC);
  }
}

// A directory image, whose programs can be replaced without touching this machine's.
class WarmPoolOfADirectory : public LinuxTest {
 protected:
  fs::path root() const { return scratch_ / "root"; }

  void SetUp() override {
    LinuxTest::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(root() / "usr");
    for (const char* name : {"bin", "lib", "lib64"}) {
      fs::create_directory_symlink(std::string("usr/") + name, root() / name);
    }
    for (const char* path : {"/bin/sh", "/bin/ls"}) copy_program(path, root());
    // So that what is shown is the directory, and not copies of a few files.
    for (int i = 0; i < 40; ++i) std::ofstream(root() / "usr/bin" / std::to_string(i)) << "x";
  }

  Scratch scratch_;
};

TEST_F(WarmPoolOfADirectory, AChangedInterpreterEmptiesThePool) {
  SandboxSpec wanted = spec();
  wanted.image = "dir:" + root().native();
  const ExpectedProgram program{.interpreter = "sh", .path = "program/main", .environment = {}};
  const auto pooled =
      make_backend({.state_dir = state(),
                    .log = {},
                    .warm_pool = WarmPool{.spec = wanted, .sandboxes = 0, .program = program}});
  const auto sandbox = pooled->acquire(key(), wanted, {});
  const auto look = [&] {
    const auto call = sandbox->open_call({.expects = program}, {});
    call->write_file(program.path, std::string_view("ls -l /proc/$$/exe; ls -i /proc/$$/exe\n"),
                     call->directory(), {});
    ExecRequest request;
    request.command = Argv{{program.interpreter, call->directory() + "/" + program.path}};
    return call->exec(request, {}).stdout;
  };
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + 60s;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(pooled->wait_until_warm(control));
    const fs::path fresh = root() / "usr/bin/fresh";
    fs::copy_file(fs::canonical("/bin/sh"), fresh);
    fs::rename(fresh, root() / "usr/bin/sh");
    const std::string seen = look();
    EXPECT_EQ(seen.find("deleted"), std::string::npos) << seen;
    EXPECT_NE(seen.find("/usr/bin/sh"), std::string::npos) << seen;
  }
}

// An importer that takes as long as it likes.
TEST_F(LinuxTest, AnAcquireDoesNotWaitForTheImportOfAPoolsImage) {
  Scratch scratch;
  const fs::path gate = scratch / "gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const fs::path skopeo = scratch / "skopeo";
  std::ofstream(skopeo) << "#!/bin/sh\nread line < " << gate.native() << "\nexit 1\n";
  fs::permissions(skopeo, fs::perms::owner_all);
  SandboxSpec imported = spec();
  imported.image = "registry.invalid/image:1";
  const auto pooled = make_backend({.state_dir = state(),
                                    .log = {},
                                    .images = {.directory = scratch / "images", .skopeo = skopeo},
                                    .warm_pool = WarmPool{.spec = imported}});
  auto first = std::async(std::launch::async, [&] {
    return pooled->acquire(key(), spec(), {})->exec(shell("echo alive"), {}).stdout;
  });
  const bool in_time = first.wait_for(20s) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "it waited for an image of others";
  // Lets the importer, and with it a waiter, go.
  const sys::UniqueFd end(open(gate.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(write(end.get(), "\n", 1), 1);
  EXPECT_EQ(first.get(), "alive\n");
}

}  // namespace
}  // namespace casemate::linux_tests
