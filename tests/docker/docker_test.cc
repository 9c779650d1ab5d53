// The docker backend with real engines: a sandbox lives, its calls are apart, and it ends.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/sys/process.h"
#include "tests/docker/engines.h"

namespace casemate::docker_tests {
namespace {

INSTANTIATE_TEST_SUITE_P(Engines, DockerTest, testing::Values("docker", "podman"),
                         [](const auto& each) { return each.param; });

std::string output(Sandbox& sandbox, const ExecRequest& request) {
  const ExecResult result = sandbox.exec(request, {});
  EXPECT_EQ(result.exit_code, 0) << result.stderr;
  return result.stdout;
}

TEST_P(DockerTest, RunsAProgram) {
  const auto sandbox = acquire();
  EXPECT_EQ(output(*sandbox, python("print(1)")), "1\n");
  EXPECT_EQ(sandbox->info().backend, "docker");
  EXPECT_EQ(sandbox->info().isolation, Isolation::container);
  EXPECT_FALSE(sandbox->info().reused);
  EXPECT_TRUE(acquire()->info().reused);
  EXPECT_EQ(containers().size(), 1U);
  EXPECT_EQ(backend().dispose(key()), 1);
  EXPECT_EQ(containers().size(), 0U);
}

TEST_P(DockerTest, EndsWithItsLastLease) {
  acquire();
  const auto id = engine().list({"casemate.scope=scope"}, {}).at(0).id;
  backend_.reset();
  // It ends by itself, and the engine removes it.
  await_gone(id);
  EXPECT_EQ(containers().size(), 0U);
  backend_ = make_backend();
}

TEST_P(DockerTest, CallsHaveUsersOfTheirOwn) {
  const auto sandbox = acquire();
  const auto one = sandbox->open_call({}, {});
  const auto two = sandbox->open_call({}, {});
  const std::string first = one->exec(shell("id -u"), {}).stdout;
  const std::string second = two->exec(shell("id -u"), {}).stdout;
  EXPECT_NE(first, second);
  EXPECT_NE(first, "0\n");
  EXPECT_EQ(one->exec(shell("echo secret > file"), {}).exit_code, 0);
  EXPECT_NE(two->exec(shell("cat " + one->directory() + "/work/file"), {}).exit_code, 0);
  EXPECT_NE(two->exec(shell("ls " + one->directory()), {}).exit_code, 0);
  EXPECT_NE(two->exec(shell("mv " + one->directory() + " /workspace/other"), {}).exit_code, 0);
  // Nor its own: it would not be found when the call ends.
  EXPECT_NE(one->exec(shell("mv " + one->directory() + " /workspace/other"), {}).exit_code, 0);
  EXPECT_EQ(one->exec(shell("touch " + one->directory() + "/beside"), {}).exit_code, 0);
  EXPECT_TRUE(one->close());
  EXPECT_TRUE(two->close());
}

TEST_P(DockerTest, NothingOfACallIsLeft) {
  const auto sandbox = acquire();
  {
    const auto call = sandbox->open_call({}, {});
    const ExecResult made = call->exec(python(R"(
import os, subprocess, ctypes
libc = ctypes.CDLL(None)
open('/tmp/left', 'w').close(); os.mkdir('/tmp/tree'); os.mkdir('/tmp/tree/more'); os.chmod('/tmp/tree', 0)
open('/dev/shm/left', 'w').close(); open('/var/tmp/left', 'w').close()
assert libc.shmget(77, 4096, 0o1600) >= 0
assert libc.semget(77, 1, 0o1600) >= 0
assert libc.msgget(77, 0o1600) >= 0
open('/workspace/kept', 'w').write('kept')
)"),
                                       {});
    EXPECT_EQ(made.exit_code, 0) << made.stderr;
    EXPECT_TRUE(made.stopped_known);
    EXPECT_TRUE(call->close());
  }
  EXPECT_EQ(output(*sandbox, python(R"(
import ctypes, os
libc = ctypes.CDLL(None)
print(os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('/var/tmp'))
print(libc.shmget(77, 0, 0), libc.semget(77, 0, 0), libc.msgget(77, 0))
print([name for name in os.listdir('/workspace') if len(name) != 12], open('/workspace/kept').read())
)")),
            "[] [] []\n-1 -1 -1\n['kept'] kept\n");
}

// DK-01: EX-01 to EX-03 with an engine.
TEST_P(DockerTest, WhatIgnoresItsEndEndsAllTheSame) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  ExecRequest request = python(R"(
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0: os.setsid()
print('running', flush=True)
while True: time.sleep(60)
)");
  request.timeout = std::chrono::seconds(1);
  const ExecResult result = call->exec(request, {});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_TRUE(result.stopped_known);
  const std::string others = call->exec(python(R"(
import os
mine = str(os.getuid())
def is_mine(p):
    try:
        return ('\nUid:\t' + mine + '\t') in open(f'/proc/{p}/status').read()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it ended meanwhile
print([p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid() and is_mine(p)])
)"),
                                        {})
                                 .stdout;
  EXPECT_EQ(others, "[]\n");
}

TEST_P(DockerTest, AForkBombEndsWithItsCall) {
  SandboxSpec small = spec();
  small.resources.pids = stated(32);
  const auto sandbox = acquire(small);
  const auto call = sandbox->open_call({}, {});
  ExecRequest bomb = python(R"(
import os, signal
signal.alarm(60)
while True:
    try:
        os.fork()
    except OSError:
        pass
)");
  bomb.timeout = std::chrono::seconds(1);
  const ExecResult result = call->exec(bomb, {});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_TRUE(call->close());
  EXPECT_EQ(output(*sandbox, python("print('after')")), "after\n");
}

// Its processes are killed in one step, faster than it forks: nobody else's are.
TEST_P(DockerTest, TheEndOfAForkBombIsNotTheEndOfAnotherCallsFileOperations) {
  SandboxSpec small = spec();
  small.resources.pids = stated(32);
  const auto sandbox = acquire(small);
  const auto bombed = sandbox->open_call({}, {});
  const auto writing = sandbox->open_call({}, {});
  const std::string large(16'000'000, 'x');
  const auto write = [&] { writing->write_file("work/large", large, writing->directory(), {}); };
  // While there is room for what serves them.
  write();
  ExecRequest bomb = python(R"(
import os, signal
signal.alarm(60)
while True:
    try:
        os.fork()
    except OSError:
        pass
)");
  bomb.timeout = std::chrono::seconds(2);
  auto ended = std::async(std::launch::async, [&] { return bombed->exec(bomb, {}); });
  do {
    EXPECT_NO_THROW(write());
  } while (ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  EXPECT_EQ(ended.get().outcome, Outcome::timed_out);
  EXPECT_NO_THROW(write());
  EXPECT_EQ(writing->read_file("work/large", writing->directory(), large.size(), {}), large);
  EXPECT_TRUE(bombed->close());
  EXPECT_TRUE(writing->close());
}

// What runs as a call's user stops everything that it may, and the host's file operations go on.
TEST_P(DockerTest, AProgramCannotStopWhatServesItsFiles) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  call->write_file("work/one", std::string_view("1"), call->directory(), {});
  const ExecResult stopping = call->exec(python(R"(
import os, signal
try:
    os.kill(-1, signal.SIGSTOP)
except ProcessLookupError:
    pass
)"),
                                         {});
  EXPECT_EQ(stopping.exit_code, 0) << stopping.stderr;
  EXPECT_EQ(call->read_file("work/one", call->directory(), 16, {}), "1");
}

TEST_P(DockerTest, WhatTheHostWritesBesideACallsDirectoryIsEveryCallsToWrite) {
  const auto sandbox = acquire();
  const auto one = sandbox->open_call({}, {});
  one->write_file("made/shared", std::string_view("one"), "/workspace", {});
  EXPECT_EQ(output(*sandbox, python("open('/workspace/made/shared', 'a').write(' two')\n"
                                    "open('/workspace/made/more', 'w')\n"
                                    "print(open('/workspace/made/shared').read())")),
            "one two\n");
}

// Of the host's processes, those that are of that user and have not ended.
std::vector<int> processes_of(unsigned user) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    struct stat status{};
    if (stat(entry.path().c_str(), &status) != 0 || status.st_uid != user) continue;
    // What is not waited for yet is still listed.
    std::string text;
    std::getline(std::ifstream(entry.path() / "stat"), text);
    if (const auto at = text.rfind(") "); at != text.npos && text[at + 2] != 'Z') {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

// Waits for the ends of all processes that this user has and that they start meanwhile, at most
// 30 s. The user may be another's afterwards: that there was nobody once is enough.
bool wait_until_all_ended(unsigned user) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (auto left = processes_of(user); !left.empty(); left = processes_of(user)) {
    try {
      if (!sys::wait_ended(sys::open_pid(left.front()).get(), until)) {
        const std::string process = "/proc/" + std::to_string(left.front());
        for (const char* file : {"/status", "/stack", "/cgroup"}) {
          std::ostringstream text;
          text << std::ifstream(process + file).rdbuf();
          ADD_FAILURE() << process << file << ":\n" << text.str();
        }
        return false;
      }
    } catch (const std::system_error&) {
      // It has ended since.
    }
  }
  return true;
}

// Of those that the sandbox's first process has started, the one with that name.
int child_named(const Sandbox& sandbox, const std::string& wanted) {
  const std::string parent = std::to_string(sandbox.first_process().value_or(0));
  std::ifstream children("/proc/" + parent + "/task/" + parent + "/children");
  for (int child = 0; children >> child;) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
    if (name == wanted) return child;
  }
  return 0;
}

// As when the kernel kills it for want of memory. Its programs leave no room for another process.
TEST_P(DockerTest, WhatACallStartedEndsThoughItsOwnProcessIsKilled) {
  SandboxSpec small = spec();
  small.resources.pids = stated(16);
  const auto sandbox = acquire(small);
  const auto call = sandbox->open_call({}, {});
  const unsigned user = static_cast<unsigned>(std::stoul(call->exec(shell("id -u"), {}).stdout));
  std::string said;
  ExecRequest request = python(R"(
import os
while True:
    try:
        if os.fork() == 0:
            continue
    except OSError:
        break
print('full', flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
)");
  std::promise<void> full;
  request.on_output = [&, told = false](OutputStream, std::span<const char>) mutable {
    if (!std::exchange(told, true)) full.set_value();
  };
  std::jthread running([&] {
    try {
      call->exec(request, {});
    } catch (const SandboxError&) {
      // Its call is killed under it.
    }
  });
  full.get_future().wait();
  const int process = child_named(*sandbox, "casemate-call");
  ASSERT_GT(process, 0);
  kill(process, SIGKILL);
  running.join();
  EXPECT_TRUE(wait_until_all_ended(user));
  EXPECT_EQ(output(*sandbox, python("print('after')")), "after\n");
}

TEST_P(DockerTest, AnotherFingerprintReplacesWhatIsIdleAndIsRefusedWhatIsBusy) {
  const auto first = acquire();
  SandboxSpec other = spec();
  other.resources.pids = stated(64);
  {
    const auto call = first->open_call({}, {});
    EXPECT_THROW(acquire(other), SandboxBusy);
  }
  const auto second = acquire(other);
  EXPECT_NE(second->info().id, first->info().id);
  EXPECT_EQ(containers().size(), 1U);
  EXPECT_THROW(first->open_call({}, {}), SandboxUnavailable);
}

TEST_P(DockerTest, WhatTheImageHasInAWorkDirIsNotThere) {
  SandboxSpec covering = spec();
  covering.work_dir = "/var/lib";
  const auto sandbox = acquire(covering);
  EXPECT_EQ(output(*sandbox, python("import os; print(os.path.exists('/var/lib/dpkg'))")),
            "False\n");
}

TEST_P(DockerTest, TellsWhatItHas) {
  SandboxSpec labelled = spec();
  labelled.labels = {{"who", "somebody with blanks"}};
  const auto sandbox = acquire(labelled);
  const auto records = backend().list();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].id, sandbox->info().id);
  EXPECT_EQ(records[0].key, key());
  EXPECT_EQ(records[0].labels, labelled.labels);
  if (backend().declarations().enforceable_limits.contains(Limit::memory)) {
    EXPECT_GT(records[0].memory_bytes, 0U);
  }
  const auto attached = make_backend()->attach(key(), "test", {});
  EXPECT_EQ(attached->info().id, sandbox->info().id);
  EXPECT_THROW(backend().attach(key("other"), "test", {}), NoSuchSandbox);
  EXPECT_FALSE(backend().dispose_id("0123456789abcdef"));
  EXPECT_TRUE(backend().dispose_id(sandbox->info().id));
  EXPECT_EQ(backend().list().size(), 0U);
}

}  // namespace
}  // namespace casemate::docker_tests
