// Programs: how they are started, what they find, and that nothing of them stays.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/seam/seam.h"
#include "tests/support/expect_refusal.h"

namespace casemate::seam {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

class Processes : public Seam {};

INSTANTIATE_TEST_SUITE_P(Every, Processes, testing::ValuesIn(providers()), provider_name);

// -- Start -----

TEST_P(Processes, RunsAnArgvAsItIs) {
  const ExecResult result = run(program({"/bin/echo", "a b$(echo injected)c", "*", ""}));
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.stdout, "a b$(echo injected)c * \n");
  EXPECT_EQ(result.stderr, "");
  EXPECT_TRUE(result.stopped_known);
  EXPECT_GT(result.wall, 0ns);
  EXPECT_FALSE(result.limit);
}

TEST_P(Processes, ADeathBySignalIsNamedAndHasNoExitCode) {
  for (const auto& [number, name] : {std::pair{"KILL", "SIGKILL"}, std::pair{"TERM", "SIGTERM"},
                                     std::pair{"SEGV", "SIGSEGV"}, std::pair{"ABRT", "SIGABRT"}}) {
    const ExecResult result = run(shell("kill -"s + number + " $$"));
    EXPECT_EQ(result.outcome, Outcome::signaled);
    EXPECT_EQ(result.signal, name);
    EXPECT_FALSE(result.exit_code);
  }
}

TEST_P(Processes, StartsInWorkWhichIsEmptyAndTheCallsOwn) {
  EXPECT_EQ(call().directory(), sandbox().info().work_dir + "/" + call().id());
  EXPECT_EQ(run(shell("pwd; ls -A; touch here")).stdout, call().directory() + "/work\n");
  EXPECT_EQ(run(shell("ls")).stdout, "here\n");
}

TEST_P(Processes, TheDirectoryIsHonouredAbsoluteAndRelative) {
  run(shell("mkdir -p a/b"));
  ExecRequest request = shell("pwd");
  request.directory = "a/../a/b";
  EXPECT_EQ(run(request).stdout, call().directory() + "/work/a/b\n");
  request.directory = "/usr";
  EXPECT_EQ(run(request).stdout, "/usr\n");
}

TEST_P(Processes, ABadDirectoryIsRefusedByItsReason) {
  run(shell("ln -s / link; touch file"));
  ExecRequest request = shell("pwd");
  request.directory = "link";
  expect_refusal<SandboxPathRefused>([&] { run(request); }, "link");
  request.directory = "link/usr";
  expect_refusal<SandboxPathRefused>([&] { run(request); }, "link");
  request.directory = "missing";
  EXPECT_THROW(run(request), SandboxFileError);
  request.directory = "file";
  try {
    run(request);
    FAIL();
  } catch (const SandboxFileError& error) {
    EXPECT_EQ(error.error_number(), ENOTDIR);
  }
  request.directory = "a\0b"s;
  EXPECT_THROW(run(request), SandboxPathRefused);
  request.directory = "/" + std::string(5000, 'a');
  EXPECT_THROW(run(request), SandboxFileError);
}

TEST_P(Processes, AProgramThatCannotRunIsAFileErrorWithItsErrno) {
  run(shell("echo text > plain; chmod 644 plain; echo junk > junk; chmod 755 junk"));
  for (const auto& [word, error] :
       {std::pair{"no-such-program", ENOENT}, std::pair{"", ENOENT}, std::pair{"./missing", ENOENT},
        std::pair{"./plain", EACCES}, std::pair{"./junk", ENOEXEC}, std::pair{"/usr", EACCES}}) {
    try {
      run(program({word}));
      ADD_FAILURE() << word << " ran";
    } catch (const SandboxFileError& refusal) {
      EXPECT_EQ(refusal.error_number(), error) << word;
    }
  }
  EXPECT_EQ(run(shell("echo fine")).stdout, "fine\n");
}

TEST_P(Processes, RefusesRequestsThatNoProgramCanGet) {
  expect_refusal<InvalidArgument>([&] { run(program({})); }, "argv");
  expect_refusal<InvalidArgument>([&] { run(program({"echo", "a\0b"s})); }, "NUL");
  ExecRequest request = shell("true");
  request.environment = {{"A=B", "c"}};
  expect_refusal<InvalidArgument>([&] { run(request); }, "A=B");
  request.environment = {{"", "c"}};
  EXPECT_THROW(run(request), InvalidArgument);
  request.environment = {{"A", "b\0c"s}};
  EXPECT_THROW(run(request), InvalidArgument);
  request = shell("true");
  request.timeout = 0ns;
  expect_refusal<InvalidArgument>([&] { run(request); }, "timeout");
  request = shell("true");
  request.stdin_mode = StdinMode::forwarded;
  expect_refusal<InvalidArgument>([&] { run(request); }, "stdin_descriptor");
}

// A request travels in one frame; Linux itself takes 128 KiB a word.
TEST_P(Processes, ArgumentsBeyondWhatLinuxTakesAreE2BIG) {
  EXPECT_EQ(run(program({"/bin/echo", std::string(100 * 1024, 'x')})).stdout.size(),
            100U * 1024 + 1);
  for (const std::vector<std::string>& words :
       {std::vector{"/bin/true"s, std::string(128 * 1024 + 1, 'x')},
        std::vector(11, std::string(100 * 1024, 'x'))}) {
    try {
      run(program(words));
      FAIL();
    } catch (const SandboxFileError& refusal) {
      EXPECT_EQ(refusal.error_number(), E2BIG);
    }
  }
}

TEST_P(Processes, TheEnvironmentIsTheBaseAndTheRequestAndNothingOfTheHost) {
  setenv("CASEMATE_TEST_SECRET", "1", 1);
  ExecRequest request = program({"/usr/bin/env"});
  request.environment = {{"A", "=\xff"}, {"HOME", "/elsewhere"}};
  EXPECT_EQ(run(request).stdout,
            "PATH=/usr/local/bin:/usr/bin:/bin:/casemate/bin\nUSER=user\nLOGNAME=user\n"
            "LANG=C.UTF-8\nTMPDIR=/tmp\nA==\xff\nHOME=/elsewhere\n");
}

TEST_P(Processes, AProgramStartsClean) {
  const ExecResult result = run(python(R"(
import os, signal
print(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))
print(os.getsid(0) == os.getpid())
print(os.umask(0) == 0o022)
print([s for s in signal.valid_signals() if s not in (9, 19) and
       signal.getsignal(s) not in (signal.SIG_DFL, None) and s != signal.SIGINT
       and s not in (signal.SIGPIPE, signal.SIGXFSZ)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(open('/proc/self/oom_score_adj').read().strip())
)"));
  // The fourth is the listing's own.
  EXPECT_EQ(result.stdout, "['0', '1', '2'] 4\nTrue\nTrue\n[]\nset()\n1000\n") << result.stderr;
}

TEST_P(Processes, PathEntriesThatLeadNowhereArePassedOver) {
  ExecRequest request = program({"echo", "found"});
  request.environment = {{"PATH", "/no/such:/etc/passwd:/usr/bin"}};
  EXPECT_EQ(run(request).stdout, "found\n");
}

TEST_P(Processes, UsageIsReported) {
  const ExecResult result = run(python("x = bytearray(64 << 20)\nfor i in range(10**6): pass"));
  EXPECT_GT(result.cpu, 5ms);
  EXPECT_GE(result.peak_memory, 64U << 20);
  EXPECT_GE(result.wall, result.cpu / 4);
}

TEST_P(Processes, FiveHundredChildrenEndWithTheProgram) {
  const ExecResult result = run(python(R"(
import os, time
for i in range(500):
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)
print('forked')
)"));
  EXPECT_EQ(result.stdout, "forked\n");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_TRUE(call().close());
}

// EX-03
TEST_P(Processes, EX_03_ATimeoutNeedsNoConsent) {
  ExecRequest request = python(R"(
import signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
while True: time.sleep(0.01)
)");
  request.timeout = 300ms;
  const ExecResult result = run(request);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_LT(result.wall, 20s);
}

// There is always output to pump; the clock is looked at all the same.
TEST_P(Processes, ATimeoutBitesWhileThePumpIsBusy) {
  ExecRequest request = shell("yes | head -c 2000000; echo x > ready; exec yes");
  request.capture_bytes = 100;
  const ExecResult result = run_out(request, 300ms);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_GT(result.stdout_missing_bytes, 1U << 20);
}

TEST_P(Processes, ASignalReachesTheProgramItself) {
  ExecRequest request =
      shell("trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.01; done");
  std::unique_ptr<Process> process;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    if (bytes[0] == 'r') process->signal(SIGUSR1);
  };
  process = call().start(request, {});
  EXPECT_THROW(process->signal(0), InvalidArgument);
  EXPECT_THROW(process->signal(65), InvalidArgument);
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.stdout, "ready\ngot it\n");
  process->signal(SIGUSR1);  // quiet when it has ended
  EXPECT_EQ(process->wait({}).stdout, result.stdout);
}

TEST_P(Processes, SeveralProgramsRunAtOnceInOneCall) {
  ExecRequest request = shell("cat > /dev/null; echo $0");
  request.stdin_mode = StdinMode::piped;
  const std::unique_ptr<Process> first = call().start(request, {});
  const std::unique_ptr<Process> second = call().start(request, {});
  second->close_stdin();
  EXPECT_EQ(second->wait({}).exit_code, 0);
  first->close_stdin();
  EXPECT_EQ(first->wait({}).exit_code, 0);
}

// -- Whatever a program leaves behind ------------------------------------------------------------

TEST_P(Processes, TheLockShowsALivingProcess) {
  const std::unique_ptr<Process> process = call().start(
      python(kHoldLock + "import time\nopen('ready', 'w').write('x')\ntime.sleep(1000)"s), {});
  awaited("ready");
  EXPECT_TRUE(lock_is_held());
  process->signal(SIGKILL);
  EXPECT_EQ(process->wait({}).signal, "SIGKILL");
  EXPECT_FALSE(lock_is_held());
}

TEST_P(Processes, NothingOfAProgramOutlivesIt) {
  // Double fork, a session of its own, deaf to every signal that can be ignored.
  const ExecResult result = run(python(kHoldLock + R"(
import signal, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
        os.write(w, b'alive')
        while True: time.sleep(100)
    os._exit(0)
print(os.read(r, 100).decode())
)"s));
  EXPECT_EQ(result.stdout, "alive\n") << result.stderr;
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_FALSE(lock_is_held());
}

// EX-01
TEST_P(Processes, EX_01_ATimeoutEndsTheWholeTree) {
  const ExecResult result = run_out(python(kHoldLock + R"(
import subprocess, time
subprocess.Popen(["sh", "-c", "sleep 1000"], close_fds=False, start_new_session=True)
print("started", flush=True)
open("ready", "w").close()
time.sleep(1000)
)"s),
                                    500ms);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.limit, Limit::time);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_FALSE(result.exit_code);
  EXPECT_EQ(result.stdout, "started\n");
  EXPECT_GE(result.wall, 500ms);
  EXPECT_FALSE(lock_is_held());
}

TEST_P(Processes, DestroyingARunningProcessEndsItAndItsTree) {
  {
    const std::unique_ptr<Process> process = call().start(
        python(kHoldLock + "os.fork()\nopen('ready', 'w').write('x')\nwhile True: os.read(0, 1) or "
                           "__import__('time').sleep(100)"s),
        {});
    awaited("ready");
    EXPECT_TRUE(lock_is_held());
  }
  EXPECT_FALSE(lock_is_held());
}

}  // namespace
}  // namespace casemate::seam
