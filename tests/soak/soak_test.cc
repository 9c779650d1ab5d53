// That nothing survives, whoever is killed and whenever.
//
// This process is a subreaper: whatever a killed host or keeper leaves behind becomes its child, so
// "no process is left" is a fact of the kernel's, not a search by name.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "casemate/sys/unique_fd.h"
#include "tests/linux/linux_test.h"
#include "tests/soak/rounds.h"
#include "tests/soak/stepped_process.h"

namespace casemate::soak {
namespace {

using namespace std::chrono_literals;
using linux_tests::control_groups_of;
using linux_tests::LinuxTest;
using linux_tests::shell;
using linux_tests::wait_until_empty;
namespace fs = std::filesystem;

// Of a sandbox's mounts, which are in a namespace of its own, only what left it shows here.
std::set<std::string> mounts_below(const fs::path& path) {
  std::set<std::string> found;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.find(path.string()) != std::string::npos) found.insert(line);
  }
  return found;
}

std::size_t open_descriptors() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class Soak : public LinuxTest {
 protected:
  void SetUp() override {
    LinuxTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    backend().list();  // makes the state directory
    watch_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    ASSERT_GE(inotify_add_watch(watch_.get(), (state() / "new").c_str(), IN_CREATE), 0);
    descriptors_ = open_descriptors();
  }

  void TearDown() override {
    LinuxTest::TearDown();
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
  }

  SandboxSpec kept_spec() {
    SandboxSpec kept = spec();
    kept.keep_idle = 1h;
    return kept;
  }

  // The groups of every sandbox that was begun since the last time.
  std::vector<std::string> groups_left() {
    std::vector<std::string> found;
    alignas(inotify_event) char buffer[8192];
    for (ssize_t size = 0; (size = read(watch_.get(), buffer, sizeof buffer)) > 0;) {
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(&buffer[at]);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        if (event->len == 0) continue;
        for (std::string& group : control_groups_of(event->name)) found.push_back(std::move(group));
      }
    }
    return found;
  }

  // After the next sweep. What was meant to be kept is disposed first.
  void expect_nothing_left(const std::string& when) {
    {
      const auto sweeper = another_backend();
      for (const SandboxRecord& record : sweeper->list()) sweeper->dispose_id(record.id);
    }
    ASSERT_TRUE(wait_for_descendants(20)) << when << ": processes are left";
    // What was still ending at the last sweep is for the next.
    another_backend()->list();
    for (const char* name : {"sandboxes", "new", "trash"}) {
      ASSERT_TRUE(wait_until_empty(state() / name)) << when << ": left in " << name;
    }
    ASSERT_EQ(groups_left(), std::vector<std::string>{}) << when;
    ASSERT_EQ(mounts_below(state()), std::set<std::string>{}) << when;
    ASSERT_EQ(open_descriptors(), descriptors_) << when;
  }

  // What a host does, from the first acquire to the last dispose.
  void one_life(const SandboxSpec& wanted) {
    const auto host = another_backend();
    const auto sandbox = host->acquire(key(), wanted, {});
    sandbox->exec(shell("(setsid sleep 1000 &); echo x > ../../left; exit 0"), {});
    host->dispose(key());
  }

  sys::UniqueFd watch_;
  std::size_t descriptors_ = 0;
};

// LC-04
TEST_F(Soak, AHostThatIsKilledAtAnySystemCallLeavesNothing) {
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  for (int step = first_step(stride);; step += stride) {
    const SandboxSpec wanted = step / stride % 2 == 0 ? spec() : kept_spec();
    const Stepped stepped = run_and_kill(Victim::host, {step}, [&] { one_life(wanted); });
    expect_nothing_left("step " + std::to_string(step));
    if (HasFatalFailure()) return;
    if (!stepped.killed) {
      EXPECT_EQ(stepped.status, 0);
      break;
    }
    ++killed;
  }
  RecordProperty("kills", killed);
  EXPECT_GT(killed * stride, 100) << "a life has many system calls";
}

// LC-04
TEST_F(Soak, AKeeperThatIsKilledAtAnySystemCallLeavesNothingAndItsHostGoesOn) {
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  for (int step = first_step(stride);; step += stride) {
    const SandboxSpec wanted = step / stride % 2 == 0 ? spec() : kept_spec();
    const Stepped stepped = run_and_kill(Victim::keeper, {step}, [&] {
      const auto host = another_backend();
      std::string out;
      for (int attempt = 0; attempt < 3 && out != "alive\n"; ++attempt) {
        try {
          out = host->acquire(key(), wanted, {})->exec(shell("echo alive"), {}).stdout;
        } catch (const SandboxUnavailable&) {
          // Its keeper was killed, and the sandbox with it.
        }
      }
      host->dispose(key());
      if (out != "alive\n") throw SandboxUnavailable("no sandbox could be had");
    });
    EXPECT_EQ(stepped.status, 0) << "step " << step;
    expect_nothing_left("step " + std::to_string(step));
    if (HasFatalFailure()) return;
    if (!stepped.killed) break;
    ++killed;
  }
  RecordProperty("kills", killed);
  EXPECT_GT(killed * stride, 100);
}

// A host that takes a ready sandbox and an interpreter that waits in it. Each run of its program
// leaves a mark.
class PooledSoak : public Soak {
 protected:
  static ExpectedProgram program() {
    return {.interpreter = "/bin/sh", .path = "program/main", .environment = {}};
  }
  std::unique_ptr<LinuxBackend> pooled_backend() {
    return std::make_unique<LinuxBackend>(LinuxBackendOptions{
        .state_dir = state(),
        .log = {},
        .warm_pool = WarmPool{.spec = kept_spec(), .sandboxes = 1, .program = program()}});
  }
  // The keeper is the first child, which is how it is told from the pool's thread.
  void fill(LinuxBackend& host) {
    try {
      host.acquire(key("first"), kept_spec(), {});
    } catch (const SandboxUnavailable&) {
      // Its keeper was killed.
    }
    CallControl control;
    control.deadline = std::chrono::steady_clock::now() + 60s;
    host.wait_until_warm(control);
  }
  std::string take_and_run(LinuxBackend& host) {
    const auto sandbox = host.acquire(key(), kept_spec(), {});
    const auto call = sandbox->open_call({.expects = program()}, {});
    call->write_file(program().path, std::string_view("echo x >> /home/user/runs; echo alive\n"),
                     call->directory(), {});
    ExecRequest request;
    request.command = Argv{{program().interpreter, call->directory() + "/" + program().path}};
    return call->exec(request, {}).stdout;
  }
  // In what a killed host left behind.
  std::string runs() {
    const auto finder = another_backend();
    try {
      return finder->attach(key(), "test", {})
          ->exec(shell("cat /home/user/runs 2> /dev/null | wc -l"), {})
          .stdout;
    } catch (const NoSuchSandbox&) {
      return "0\n";
    }
  }
};

// LC-04
TEST_F(PooledSoak, AHostThatIsKilledWhileItTakesFromItsPoolLeavesNothingAndRunsNothingTwice) {
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  std::set<std::string> seen;
  for (int step = first_step(stride);; step += stride) {
    const Stepped stepped = run_and_kill(Victim::host, {step}, [&] {
      const auto host = pooled_backend();
      fill(*host);
      take_and_run(*host);
      host->dispose(key());
      host->dispose(key("first"));
    });
    if (stepped.killed) {
      seen.insert(runs());
      EXPECT_FALSE(seen.contains("2\n")) << "step " << step;
    }
    expect_nothing_left("step " + std::to_string(step));
    if (HasFatalFailure()) return;
    if (!stepped.killed) {
      EXPECT_EQ(stepped.status, 0);
      break;
    }
    ++killed;
  }
  EXPECT_TRUE(seen.contains("1\n"))
      << "no kill came after the program's run and before its dispose";
  EXPECT_GT(killed * stride, 100);
}

// LC-04
TEST_F(PooledSoak, AKeeperThatIsKilledUnderAPoolLeavesNothingAndItsHostGoesOn) {
  const int stride = whole() ? 1 : 10;
  int killed = 0;
  for (int step = first_step(stride);; step += stride) {
    const Stepped stepped = run_and_kill(Victim::keeper, {step}, [&] {
      const auto host = pooled_backend();
      fill(*host);
      std::string out;
      for (int attempt = 0; attempt < 3 && out != "alive\n"; ++attempt) {
        try {
          out = take_and_run(*host);
        } catch (const SandboxUnavailable&) {
          // Its keeper was killed, and the sandbox with it.
        }
      }
      host->dispose(key());
      host->dispose(key("first"));
      if (out != "alive\n") throw SandboxUnavailable("no sandbox could be had");
    });
    EXPECT_EQ(stepped.status, 0) << "step " << step;
    expect_nothing_left("step " + std::to_string(step));
    if (HasFatalFailure()) return;
    if (!stepped.killed) break;
    ++killed;
  }
  EXPECT_GT(killed * stride, 100);
}

// LC-02, LC-04
TEST_F(Soak, CompetingHostsThatAreKilledAtRandomLeaveNothing) {
  const char* given = given_seed();
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 20260101U;
  std::mt19937 random(seed);
  for (int round = 0; round < rounds(300); ++round) {
    std::vector<pid_t> hosts;
    for (int i = 0; i < 2; ++i) {
      const auto own = static_cast<unsigned>(random());
      const pid_t pid = fork();
      if (pid == 0) {
        std::mt19937 choice(own);
        try {
          const auto host = another_backend();
          while (true) {
            const SandboxKey which = key(std::to_string(choice() % 2));
            const auto sandbox = host->acquire(which, choice() % 2 == 0 ? spec() : kept_spec(), {});
            try {
              sandbox->exec(shell("true"), {});
            } catch (const SandboxUnavailable&) {
              // The other host disposed it.
            }
            if (choice() % 3 == 0) host->dispose(which);
          }
        } catch (const std::exception& error) {
          dprintf(2, "%s\n", error.what());
          _exit(1);
        }
      }
      hosts.push_back(pid);
    }
    for (const pid_t pid : hosts) {
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(random() % 30000)));
      kill(pid, SIGKILL);
      int status = 0;
      waitpid(pid, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status)) << "a host failed by itself";
    }
    expect_nothing_left("round " + std::to_string(round) + " of seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

// Bounded, and harmless where they succeed.
const std::vector<std::string>& hostile_programs() {
  static const std::vector<std::string> programs = {
      // Out of the process group, the session, the parent.
      "import os,time\n"
      "for _ in range(20):\n"
      "  if os.fork() == 0:\n"
      "    os.setsid()\n"
      "    if os.fork(): os._exit(0)\n"
      "    time.sleep(1000)\n",
      // Forks for as long as it may.
      "import os,time\n"
      "end = time.monotonic() + 0.2\n"
      "while time.monotonic() < end:\n"
      "  try: os.fork()\n"
      "  except OSError: pass\n",
      // Deaf to every signal that can be ignored.
      "import signal,time\n"
      "for n in range(1, 65):\n"
      "  try: signal.signal(n, signal.SIG_IGN)\n"
      "  except (OSError, ValueError): pass\n"
      "time.sleep(1000)\n",
      // Fills what it may write to.
      "f = open('fill', 'wb', buffering=0)\n"
      "try:\n"
      "  while True: f.write(b'x' * (1 << 20))\n"
      "except OSError: pass\n",
      // A tree that is hard to remove.
      "import os\n"
      "for _ in range(300):\n"
      "  os.mkdir('d' * 200); os.chmod('d' * 200, 0o700); os.chdir('d' * 200)\n"
      "open('f', 'w').close(); os.chmod('.', 0)\n",
      // Many names in one directory, links and pipes among them.
      "import os\n"
      "for i in range(2000): os.symlink('/', 'l%d' % i)\n"
      "for i in range(100): os.mkfifo('p%d' % i)\n",
      // Stops itself, and its children.
      "import os,signal\n"
      "for _ in range(5):\n"
      "  if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
      "os.kill(os.getpid(), signal.SIGSTOP)\n",
      // Everybody it can name.
      "import os,signal\n"
      "for n in range(1, 200):\n"
      "  try: os.kill(n, signal.SIGKILL)\n"
      "  except OSError: pass\n"
      "os.kill(-1, signal.SIGKILL)\n",
      // Sockets, shared memory, message queues that outlive a process elsewhere.
      "import os,socket,time\n"
      "s = [socket.socket() for _ in range(50)]\n"
      "u = socket.socket(socket.AF_UNIX); u.bind('\\0kept'); u.listen()\n"
      "open('/dev/shm/kept', 'w').write('x'); open('/tmp/kept', 'w').write('x')\n"
      "if os.fork() == 0: time.sleep(1000)\n",
      // Prints for ever, from a child that it leaves.
      "import os\n"
      "if os.fork() == 0:\n"
      "  while True: os.write(1, b'x' * 65536)\n",
  };
  return programs;
}

// Only where it is bounded.
constexpr char kTakesMemory[] =
    "b = []\n"
    "while True: b.append(bytearray(1 << 24))\n";

TEST_F(Soak, HostilePrograms) {
  const std::set<Limit> held = backend().declarations().enforceable_limits;
  SandboxSpec tight = spec();
  tight.resources.disk_bytes = stated(16 << 20);
  tight.resources.pids = stated(32);
  std::vector<std::string> programs = hostile_programs();
  if (held.contains(Limit::memory)) {
    tight.resources.memory_bytes = stated(64 << 20);
    programs.emplace_back(kTakesMemory);
  }
  auto host = another_backend();
  for (int i = 0; i < rounds(1000); ++i) {
    const std::string& program = programs[static_cast<std::size_t>(i) % programs.size()];
    // Some in a sandbox that others used, some in one of their own.
    const SandboxKey which = key(i % 3 == 0 ? "own " + std::to_string(i) : "shared");
    ExecRequest request = linux_tests::python(program);
    request.timeout = 300ms;
    const ExecResult result = host->acquire(which, tight, {})->exec(request, {});
    EXPECT_TRUE(result.stopped_known) << i << ": " << program;
    if (i % 3 == 0) {
      EXPECT_EQ(host->dispose(which), 1) << i;
    }
  }
  EXPECT_EQ(host->acquire(key("shared"), tight, {})->exec(shell("echo alive"), {}).stdout,
            "alive\n");
  EXPECT_EQ(host->dispose(key("shared")), 1);
  EXPECT_TRUE(host->list().empty());
  host.reset();
  expect_nothing_left("after the last program");
}

}  // namespace
}  // namespace casemate::soak
