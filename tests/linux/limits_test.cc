// Limits of the linux backend: each holds, at the value and one more, and the one that bit is
// named.

#include "tests/linux/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "casemate/local/group_detection.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A spent processor share must not keep the guest from ending what spends it.
TEST_F(LinuxLimits, AForkBombOnASliverOfAProcessorStillEndsWithItsOutput) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.cpu_millis = stated(50);
  const auto sandbox = limited(resources);
  ExecRequest bomb = python(
      "import os\nprint('kept', flush=True)\n"
      "while True:\n  try: os.fork()\n  except OSError: pass");
  bomb.timeout = 3s;
  const ExecResult result = sandbox->exec(bomb, {});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.stdout, "kept\n");
  EXPECT_TRUE(result.stopped_known);
}

// RL-08
TEST_F(LinuxLimits, EveryWritablePlaceRunsFullAndNamesTheDisk) {
  Resources resources;
  resources.disk_bytes = stated(8 * kMiB);
  const auto sandbox = limited(resources);
  const ExecResult result = sandbox->exec(python(R"(
import errno, os, sys
for d in ('.', '/tmp', '/dev/shm', '/var/tmp', '/home/user', '/workspace', '/run'):
    try:
        with open(d + '/fill', 'wb', buffering=0) as f:
            for i in range(1 << 14): f.write(b'x' * (1 << 20))
        print(d, 'unlimited?')
    except OSError as e:
        print(d, errno.errorcode[e.errno])
        if d != '/run': os.unlink(d + '/fill')
open('last', 'wb').write(b'x' * (9 << 20))
)"),
                                          {});
  EXPECT_EQ(result.stdout,
            ". ENOSPC\n/tmp ENOSPC\n/dev/shm ENOSPC\n/var/tmp ENOSPC\n/home/user ENOSPC\n"
            "/workspace ENOSPC\n/run EROFS\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.limit, Limit::disk);
  EXPECT_FALSE(result.files_ran_out);
  // The call's files went with the call.
  const ExecResult next = sandbox->exec(shell("head -c 7M /dev/zero > again && echo room"), {});
  EXPECT_EQ(next.stdout, "room\n");
  EXPECT_EQ(next.limit, std::nullopt);
}

TEST_F(LinuxLimits, FilesAreCountedToo) {
  Resources resources;
  resources.disk_inodes = stated(100);
  const ExecResult result =
      limited(resources)->exec(python("for i in range(101): open(f'f{i}', 'w').close()"), {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.stderr, HasSubstr("No space left on device"));
  EXPECT_EQ(result.limit, Limit::disk);
  EXPECT_TRUE(result.files_ran_out);
}

TEST_F(LinuxLimits, ProcessesAtTheLimitPassAndOneMoreIsRefusedAndNamed) {
  Resources resources;
  resources.pids = stated(20);
  const auto sandbox = limited(resources);
  const auto forks = [&](int count) {
    return sandbox->exec(python("import os, time\n"
                                "for i in range(" +
                                std::to_string(count) +
                                "):\n"
                                "    if os.fork() == 0: time.sleep(60)\n"
                                "print('all')"),
                         {});
  };
  const ExecResult at = forks(19);
  EXPECT_EQ(at.stdout, "all\n");
  EXPECT_EQ(at.limit, std::nullopt);
  const ExecResult over = forks(20);
  EXPECT_EQ(over.exit_code, 1);
  // Who counts without a group tells nobody.
  EXPECT_EQ(over.limit, Limit::pids);
  EXPECT_TRUE(over.stopped_known);
}

TEST_F(LinuxLimits, AForkBombEndsWithTheTimeoutAndTheSandboxStaysWarm) {
  const auto sandbox = limited({});
  ExecRequest bomb = python("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass");
  bomb.timeout = 500ms;
  const ExecResult result = sandbox->exec(bomb, {});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_EQ(sandbox->exec(shell("echo warm"), {}).stdout, "warm\n");
}

TEST_F(LinuxLimits, OpenFilesAtTheLimitPassAndOneMoreIsRefused) {
  Resources resources;
  resources.open_files = stated(64);
  const ExecResult result = limited(resources)->exec(python(R"(
import os
held = [os.open('/dev/null', os.O_RDONLY) for _ in range(61)]
print(max(held))
try: os.open('/dev/null', os.O_RDONLY)
except OSError as e: print(e.strerror)
)"),
                                                     {});
  EXPECT_EQ(result.stdout, "63\nToo many open files\n");
}

TEST_F(LinuxLimits, OpenFilesAboveTheHostsOwnBoundAreRefusedWhenStated) {
  rlimit own{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &own), 0);
  if (own.rlim_max == RLIM_INFINITY) GTEST_SKIP() << "no bound to be above";
  Resources resources;
  resources.open_files = stated(own.rlim_max);
  EXPECT_EQ(limited(resources)->exec(shell("ulimit -n"), {}).stdout,
            std::to_string(own.rlim_max) + "\n");
  resources.open_files = stated(own.rlim_max + 1);
  // Whoever may raise the bound is above none.
  const rlimit more{own.rlim_max + 1, own.rlim_max + 1};
  if (setrlimit(RLIMIT_NOFILE, &more) == 0) {
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &own), 0);
    EXPECT_EQ(limited(resources)->exec(shell("ulimit -n"), {}).stdout,
              std::to_string(own.rlim_max + 1) + "\n");
    return;
  }
  expect_refusal<SandboxLimitNotEnforceable>([&] { limited(resources); }, "files");
  resources.open_files.stated = false;
  EXPECT_TRUE(limited(resources)->info().limits_not_held.contains(Limit::files));
}

// RL-06
TEST_F(LinuxLimits, WhereAControllerCannotBeWrittenADefaultRunsAndAStatedLimitIsRefused) {
  NEEDS_CONTROL_GROUPS();
  if (geteuid() != 0) GTEST_SKIP() << "mounting over a controller needs root";
  // What is not held by default, what a program says, and the refusal where a limit is stated.
  const auto where_read_only = [&](const std::string& path, const Resources& limit) {
    int channel[2];
    EXPECT_EQ(pipe(channel), 0);
    const pid_t child = fork();
    if (child == 0) {
      // A mount namespace of its own in which the hierarchy is read-only, as a container's is.
      std::string answer = "no namespace";
      if (unshare(CLONE_NEWNS) == 0 &&
          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
          mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0) {
        try {
          const auto own = another_backend();
          const auto made = own->acquire(key("read-only"), spec(), {});
          answer = join_names(made->info().limits_not_held);
          answer += "|" + made->exec(shell("ulimit -p"), {}).stdout;
          SandboxSpec wanted = spec();
          wanted.resources = limit;
          own->acquire(key("read-only too"), wanted, {});
        } catch (const SandboxError& error) {
          answer += "|" + std::string(error.code());
        }
      }
      static_cast<void>(!write(channel[1], answer.data(), answer.size()));
      _exit(0);
    }
    close(channel[1]);
    char text[1000] = {};
    EXPECT_GT(read(channel[0], text, sizeof text - 1), 0);
    close(channel[0]);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    return std::string(text);
  };
  const auto layout = local::detect_groups().layout;
  Resources memory;
  memory.memory_bytes = stated(64 * kMiB);
  Resources processes;
  processes.pids = stated(64);
  if (layout.memory->unified) {
    EXPECT_THAT(where_read_only(layout.memory->base, memory),
                testing::MatchesRegex("memory, cpu\\|[0-9]+\n\\|SandboxLimitNotEnforceable"));
  } else {
    // Processes have a group of their own there, and root may lift the bound that is each user's.
    EXPECT_THAT(
        where_read_only(layout.memory->base, memory),
        testing::MatchesRegex("memory\\|([0-9]+|unlimited)\n\\|SandboxLimitNotEnforceable"));
    // Found out when the sandbox is being made already.
    EXPECT_EQ(where_read_only(layout.pids->base, processes), "nothing|128\n");
  }
}

// Spins for that many seconds of its own processor time.
std::string spin(const char* seconds) {
  return std::string("import time\nwhile time.process_time() < ") + seconds + ": pass\n";
}

TEST_F(LinuxLimits, ProcessorSecondsEndAllThatSpendsThemAndAreNamed) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.cpu_millis = stated(2000);
  resources.cpu_seconds = stated(1);
  // A shell's own start costs next to none of them.
  ExecRequest busy =
      shell("echo kept; for i in 1 2 3; do while :; do :; done & done; while :; do :; done");
  busy.timeout = 60s;
  const auto sandbox = limited(resources);
  const ExecResult result = sandbox->exec(busy, {});
  EXPECT_EQ(result.outcome, Outcome::signaled);
  EXPECT_EQ(result.signal, "SIGKILL");
  EXPECT_EQ(result.limit, Limit::cpu);
  EXPECT_EQ(result.stdout, "kept\n");
  EXPECT_TRUE(result.stopped_known);
  EXPECT_GE(result.cpu, 1s);
  EXPECT_LT(result.cpu, 3s);
  // Nothing carries over.
  const ExecResult next = sandbox->exec(shell("for i in 1 2 3; do echo $i; done"), {});
  EXPECT_EQ(next.exit_code, 0);
  EXPECT_EQ(next.limit, std::nullopt);
}

TEST_F(LinuxLimits, ProcessorSecondsAreTheCallsAndWaitingCostsNone) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.cpu_seconds = stated(1);
  const auto call = limited(resources)->open_call({}, {});
  EXPECT_EQ(call->exec(python(spin("0.6") + "time.sleep(0.7)"), {}).exit_code, 0);
  const ExecResult second = call->exec(python(spin("5")), {});
  EXPECT_EQ(second.outcome, Outcome::signaled);
  EXPECT_EQ(second.limit, Limit::cpu);
  // Nothing is left of it: the next does not get far.
  EXPECT_EQ(call->exec(python(spin("5")), {}).limit, Limit::cpu);
}

// A kill of the program's own is not the limit's.
TEST_F(LinuxLimits, AKillBelowTheProcessorSecondsNamesNoLimit) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.cpu_seconds = stated(10);
  const ExecResult result = limited(resources)->exec(shell("kill -9 $$"), {});
  EXPECT_EQ(result.signal, "SIGKILL");
  EXPECT_EQ(result.limit, std::nullopt);
}

TEST_F(LinuxLimits, TheShareOfAProcessorHolds) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.cpu_millis = stated(200);
  ExecRequest spin = python("while True: pass");
  spin.timeout = 1500ms;
  const ExecResult result = limited(resources)->exec(spin, {});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.limit, Limit::time);
  // A fifth, and the kernel may lend a period or two.
  EXPECT_LT(result.cpu, 1s);
}

TEST_F(LinuxLimits, TheTimeoutIsKeptAndWhatWasPrintedToo) {
  ExecRequest request = shell("echo step 1; exec sleep 60");
  request.timeout = 1s;
  const ExecResult result = limited({})->exec(request, {});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.limit, Limit::time);
  EXPECT_EQ(result.stdout, "step 1\n");
  EXPECT_GE(result.wall, 1s);
  EXPECT_LT(result.wall, 20s);
  EXPECT_TRUE(result.stopped_known);
}

TEST_F(LinuxLimits, ProcessorTimeAndPeakMemoryAreCountedForAllItStarted) {
  const ExecResult result = limited({})->exec(
      python("import os\nif os.fork() == 0:\n  b = bytearray(100 << 20)\n  "
             "for i in range(0, len(b), 4096): b[i] = 1\n  "
             "import time\n  while time.process_time() < 0.3: pass\nelse: os.wait()"),
      {});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_GE(result.cpu, 300ms);
  EXPECT_GE(result.peak_memory, 100 * kMiB);
  EXPECT_LT(result.peak_memory, 200 * kMiB);
}

// RL-06
class LinuxWithoutControlGroups : public LinuxTest {
 protected:
  std::shared_ptr<Sandbox> limited(const Resources& resources) {
    if (!own_) {
      own_ = make_backend({.state_dir = state(), .log = {}, .control_groups = ControlGroups::none});
    }
    SandboxSpec wanted = spec();
    wanted.resources = resources;
    return own_->acquire(key(), wanted, {});
  }
  void TearDown() override {
    own_.reset();
    LinuxTest::TearDown();
  }

 private:
  std::unique_ptr<local::LocalBackend> own_;
};

TEST_F(LinuxWithoutControlGroups, DefaultsRunAndWhatIsNotHeldIsSaid) {
  const auto sandbox = limited({});
  EXPECT_EQ(sandbox->info().limits_not_held, (std::set<Limit>{Limit::memory, Limit::cpu}));
  EXPECT_EQ(control_groups_of(sandbox->info().id), std::vector<std::string>{});
  const ExecResult result = sandbox->exec(
      python("b = bytearray(50 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\n" + spin("0.2")),
      {});
  EXPECT_EQ(result.exit_code, 0);
  // Of the process itself, as the kernel tells its parent.
  EXPECT_GE(result.cpu, 200ms);
  EXPECT_GE(result.peak_memory, 50 * kMiB);
  EXPECT_LT(result.peak_memory, 200 * kMiB);
}

TEST_F(LinuxWithoutControlGroups, StatedLimitsThatNeedThemAreRefusedWithTheReason) {
  Resources resources;
  resources.memory_bytes = stated(64 * kMiB);
  expect_refusal<SandboxLimitNotEnforceable>([&] { limited(resources); }, {"memory", "options"});
  resources = {};
  resources.cpu_millis = stated(500);
  expect_refusal<SandboxLimitNotEnforceable>([&] { limited(resources); }, {"cpu", "options"});
  resources = {};
  resources.cpu_seconds = stated(5);
  expect_refusal<SandboxLimitNotEnforceable>([&] { limited(resources); }, {"cpu", "options"});
}

TEST_F(LinuxWithoutControlGroups, ProcessesDiskFilesAndTimeAreHeldAsEver) {
  Resources resources;
  resources.pids = stated(20);
  resources.disk_bytes = stated(4 * kMiB);
  resources.open_files = stated(32);
  const auto sandbox = limited(resources);
  const auto forks = [&](int count) {
    return sandbox->exec(python("import os, time\nfor i in range(" + std::to_string(count) +
                                "):\n  if os.fork() == 0: time.sleep(60)\nprint('all')"),
                         {});
  };
  EXPECT_EQ(forks(19).stdout, "all\n");
  const ExecResult over = forks(20);
  EXPECT_THAT(over.stderr, HasSubstr("BlockingIOError"));
  EXPECT_TRUE(over.stopped_known);
  EXPECT_EQ(over.limit, Limit::pids) << "found out by trying";
  EXPECT_EQ(sandbox
                ->exec(python("import os\nfor i in range(18):\n  if os.fork() == 0:\n"
                              "    import time; time.sleep(60)\nraise SystemExit(3)"),
                       {})
                .limit,
            std::nullopt)
      << "there was room for one more";
  EXPECT_EQ(sandbox->exec(shell("head -c 5M /dev/zero > fill"), {}).limit, Limit::disk);
  EXPECT_EQ(sandbox->exec(shell("ulimit -n"), {}).stdout, "32\n");
  ExecRequest bomb = python("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass");
  bomb.timeout = 500ms;
  EXPECT_EQ(sandbox->exec(bomb, {}).outcome, Outcome::timed_out);
  EXPECT_EQ(sandbox->exec(shell("echo warm"), {}).stdout, "warm\n");
}

// The bound of each process where nobody counts for all of them.
TEST_F(LinuxWithoutControlGroups, UnstatedProcessorSecondsBoundEachProcess) {
  Resources resources;
  resources.cpu_seconds = ResourceLimit{.value = 1, .stated = false};
  const auto sandbox = limited(resources);
  EXPECT_TRUE(sandbox->info().limits_not_held.contains(Limit::cpu));
  ExecRequest busy = python("while True: pass");
  busy.timeout = 30s;
  const ExecResult result = sandbox->exec(busy, {});
  EXPECT_EQ(result.signal, "SIGKILL");
  EXPECT_LT(result.cpu, 2s);
}

// They are counted for the host's user, who has 128 of them by default for everything.
TEST_F(LinuxLimits, AProgramTakesFewInotifyInstancesOfTheHostsUser) {
  const ExecResult taken =
      limited({})->exec(python("import ctypes, os\nlibc = ctypes.CDLL(None)\n"
                               "count = 0\n"
                               "while count < 200 and libc.inotify_init() >= 0: "
                               "count += 1\nprint(count)"),
                        {});
  EXPECT_EQ(taken.stdout, "16\n");
}

}  // namespace
}  // namespace casemate::linux_tests
