// What a person gets from a call: programs that run, end and leave nothing. The guest is real, over
// plain directories.

#include "casemate/guest/agent_sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/plain_sandbox.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

ExecRequest shell(std::string line) {
  ExecRequest request;
  request.command = ShellLine{std::move(line)};
  return request;
}

ExecRequest program(std::vector<std::string> words) {
  ExecRequest request;
  request.command = Argv{std::move(words)};
  return request;
}

ExecRequest python(std::string text) {
  return program({"/usr/bin/python3", "-u", "-c", std::move(text)});
}

class AgentSandboxTest : public testing::Test {
 protected:
  AgentSandboxTest() : call_(plain_.sandbox().open_call({}, {})) {}

  ExecResult run(const ExecRequest& request) { return call_->exec(request, {}); }

  // Whether a process of that id exists and is no zombie.
  static bool is_alive(const std::string& pid) {
    std::ifstream file("/proc/" + pid + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t after_name = text.rfind(')');
    return after_name != std::string::npos && text[after_name + 2] != 'Z';
  }

  // What a program of the call writes into `work/<name>`, once it is there.
  std::string pid_in(const std::string& name) {
    return run(shell("until [ -s " + name + " ]; do sleep 0.01; done; printf %s $(cat " + name +
                     ")"))
        .stdout;
  }

  // The places are the host's own directories and processes here, so the host can look.
  static void await_end_of(const std::string& pid) {
    const sys::UniqueFd process(
        static_cast<int>(syscall(SYS_pidfd_open, std::atoi(pid.c_str()), 0)));
    if (!process) return;  // already reaped
    std::array<pollfd, 1> entries{pollfd{process.get(), POLLIN, 0}};
    EXPECT_EQ(sys::poll_until(entries, Clock::now() + 20s), 1);
  }

  PlainSandbox plain_;
  std::unique_ptr<Call> call_;
};

// -- Programs ------------------------------------------------------------------------------------

TEST_F(AgentSandboxTest, RunsAnArgvAsItIs) {
  const ExecResult result = run(program({"/bin/echo", "a b$(echo injected)c", "*", ""}));
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.stdout, "a b$(echo injected)c * \n");
  EXPECT_EQ(result.stderr, "");
  EXPECT_TRUE(result.stopped_known);
  EXPECT_GT(result.wall, 0ns);
  EXPECT_FALSE(result.limit);
}

TEST_F(AgentSandboxTest, KeepsTheStreamsApartAndTheExitCode) {
  const ExecResult result = run(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(result.stdout, "out\n");
  EXPECT_EQ(result.stderr, "err\n");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_FALSE(result.signal);
}

TEST_F(AgentSandboxTest, ADeathBySignalIsNamedAndHasNoExitCode) {
  for (const auto& [number, name] : {std::pair{"KILL", "SIGKILL"}, std::pair{"TERM", "SIGTERM"},
                                     std::pair{"SEGV", "SIGSEGV"}, std::pair{"ABRT", "SIGABRT"}}) {
    const ExecResult result = run(shell("kill -"s + number + " $$"));
    EXPECT_EQ(result.outcome, Outcome::signaled);
    EXPECT_EQ(result.signal, name);
    EXPECT_FALSE(result.exit_code);
  }
}

TEST_F(AgentSandboxTest, StartsInWorkWhichIsEmptyAndTheCallsOwn) {
  EXPECT_EQ(call_->directory(), plain_.work_dir() + "/" + call_->id());
  EXPECT_EQ(run(shell("pwd; ls -A; touch here")).stdout, call_->directory() + "/work\n");
  EXPECT_EQ(run(shell("ls")).stdout, "here\n");
}

TEST_F(AgentSandboxTest, TheDirectoryIsHonouredAbsoluteAndRelative) {
  run(shell("mkdir -p a/b"));
  ExecRequest request = shell("pwd");
  request.directory = "a/../a/b";
  EXPECT_EQ(run(request).stdout, call_->directory() + "/work/a/b\n");
  request.directory = "/usr";
  EXPECT_EQ(run(request).stdout, "/usr\n");
}

TEST_F(AgentSandboxTest, ABadDirectoryIsRefusedByItsReason) {
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

TEST_F(AgentSandboxTest, AProgramThatCannotRunIsAFileErrorWithItsErrno) {
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

TEST_F(AgentSandboxTest, RefusesRequestsThatNoProgramCanGet) {
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
TEST_F(AgentSandboxTest, ArgumentsBeyondWhatLinuxTakesAreE2BIG) {
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

TEST_F(AgentSandboxTest, TheEnvironmentIsTheBaseAndTheRequestAndNothingOfTheHost) {
  setenv("CASEMATE_TEST_SECRET", "1", 1);
  ExecRequest request = program({"/usr/bin/env"});
  request.environment = {{"A", "=\xff"}, {"HOME", "/elsewhere"}};
  EXPECT_EQ(run(request).stdout,
            "PATH=/usr/local/bin:/usr/bin:/bin\nUSER=user\nLOGNAME=user\nLANG=C.UTF-8\n"
            "TMPDIR=/tmp\nA==\xff\nHOME=/elsewhere\n");
}

TEST_F(AgentSandboxTest, AProgramStartsClean) {
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

TEST_F(AgentSandboxTest, UsageIsReported) {
  const ExecResult result = run(python("x = bytearray(64 << 20)\nfor i in range(10**6): pass"));
  EXPECT_GT(result.cpu, 5ms);
  EXPECT_GE(result.peak_memory, 64U << 20);
  EXPECT_GE(result.wall, result.cpu / 4);
}

// -- Whatever a program leaves behind ------------------------------------------------------------

TEST_F(AgentSandboxTest, NothingOfAProgramOutlivesIt) {
  // Double fork, a session of its own, deaf to signals; the pid is told before the end.
  const ExecResult result = run(python(R"(
import os, signal, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
        os.write(w, str(os.getpid()).encode())
        while True: time.sleep(100)
    os._exit(0)
print(os.read(r, 100).decode())
)"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stopped_known);
  ASSERT_GT(result.stdout.size(), 1U);
  EXPECT_FALSE(is_alive(result.stdout.substr(0, result.stdout.size() - 1)));
}

TEST_F(AgentSandboxTest, FiveHundredChildrenEndWithTheProgram) {
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
  EXPECT_TRUE(call_->close());
}

// EX-01, with the descendants of a shell.
TEST_F(AgentSandboxTest, EX_01_ATimeoutEndsTheWholeTree) {
  ExecRequest request = python(R"(
import subprocess, time
p = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"])
time.sleep(1000)
)");
  request.timeout = 300ms;
  const auto begin = Clock::now();
  const ExecResult result = run(request);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.limit, Limit::time);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_FALSE(result.exit_code);
  EXPECT_GE(result.wall, 300ms);
  EXPECT_LT(Clock::now() - begin, 4s);
  ASSERT_GT(result.stdout.size(), 1U);
  EXPECT_FALSE(is_alive(result.stdout.substr(0, result.stdout.size() - 1)));
}

// EX-03
TEST_F(AgentSandboxTest, EX_03_ATimeoutNeedsNoConsent) {
  ExecRequest request = python(R"(
import signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
while True: time.sleep(0.01)
)");
  request.timeout = 300ms;
  const ExecResult result = run(request);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_LT(result.wall, 3s);
}

// EX-07, as far as it is the pump's: what was printed is there.
TEST_F(AgentSandboxTest, EX_07_OutputBeforeTheTimeoutIsKept) {
  ExecRequest request = shell("echo step 1 ok; echo oops >&2; exec sleep 1000");
  request.timeout = 200ms;
  const ExecResult result = run(request);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.stdout, "step 1 ok\n");
  EXPECT_EQ(result.stderr, "oops\n");
}

// EX-05: 63,000 bytes are in the pipe when the program is gone, and something still holds it open.
TEST_F(AgentSandboxTest, EX_05_NothingInThePipeIsLostAndNobodyWaitsForItsEnd) {
  std::string expected;
  for (int i = 0; i < 9000; ++i) {
    std::string digits = std::to_string(i);
    expected += std::string(6 - digits.size(), '0') + digits + "\n";
  }
  std::ofstream(plain_.root() / "data") << expected;
  const std::string line = "sleep 1000 & cat " + (plain_.root() / "data").string();
  for (int round = 0; round < 200; ++round) {
    const auto begin = Clock::now();
    const ExecResult result = run(shell(line));
    ASSERT_EQ(result.stdout.size(), 63'000U) << round;
    ASSERT_EQ(result.stdout, expected);
    ASSERT_EQ(result.exit_code, 0);
    ASSERT_LT(Clock::now() - begin, 10s);
  }
}

// The same by the case's own program.
TEST_F(AgentSandboxTest, EX_05_NothingIsLostByAnAbruptExit) {
  for (int round = 0; round < 5; ++round) {
    const ExecResult result = run(python(R"(
import os, subprocess
subprocess.Popen(["sleep", "40"])
data = b"".join(b"%06d\n" % i for i in range(9000))
os.write(1, data)
os._exit(0)
)"));
    ASSERT_EQ(result.stdout.size(), 63'000U);
    ASSERT_EQ(result.stdout.substr(result.stdout.size() - 7), "008999\n");
  }
}

// -- Output --------------------------------------------------------------------------------------

TEST_F(AgentSandboxTest, MuchOutputThroughASmallCaptureKeepsHeadAndTail) {
  ExecRequest request = shell("printf HEAD; head -c 10485760 /dev/zero | tr '\\0' x; printf TAIL");
  request.capture_bytes = 1000;
  const ExecResult result = run(request);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.stdout.size(), 1000U);
  EXPECT_EQ(result.stdout.substr(0, 5), "HEADx");
  EXPECT_EQ(result.stdout.substr(995), "xTAIL");
  EXPECT_EQ(result.stdout_missing_bytes, 10'485'760U + 8 - 1000);
  EXPECT_EQ(result.stdout_cut_at, 500U);
}

TEST_F(AgentSandboxTest, TheCallbackGetsEveryByteInOrder) {
  ExecRequest request = shell("seq 1 200000; echo done >&2");
  request.capture_bytes = 10;
  std::string out;
  std::string err;
  request.on_output = [&](OutputStream stream, std::span<const char> bytes) {
    (stream == OutputStream::out ? out : err).append(bytes.data(), bytes.size());
  };
  run(request);
  std::string expected;
  for (int i = 1; i <= 200'000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(out, expected);
  EXPECT_EQ(err, "done\n");
}

TEST_F(AgentSandboxTest, AnExceptionFromTheCallbackEndsTheProgramAndReachesTheCaller) {
  struct Enough {};
  ExecRequest request = shell("echo $$; exec sleep 1000");
  std::string pid;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    pid.assign(bytes.data(), bytes.size() - 1);
    throw Enough{};
  };
  const std::unique_ptr<Process> process = call_->start(request, {});
  EXPECT_THROW(process->wait({}), Enough);
  EXPECT_FALSE(is_alive(pid));
  EXPECT_THROW(process->wait({}), Enough);
}

// A host that does not read holds up the program, never its timeout.
TEST_F(AgentSandboxTest, ASlowReaderLosesNothingAndTheTimeoutStillBites) {
  ExecRequest request = shell("echo $$ > part; mv part pid; exec yes");
  request.timeout = 300ms;
  const std::unique_ptr<Process> process = call_->start(request, {});
  // Nobody is in wait: pipe and socket fill up, the program blocks, its time runs out.
  await_end_of(pid_in("pid"));
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_GE(result.wall, 300ms);
  const std::uint64_t bytes = result.stdout.size() + result.stdout_missing_bytes;
  EXPECT_GT(bytes, 64U * 1024);
  EXPECT_LT(bytes, 2U * 1024 * 1024);
}

// -- Input ---------------------------------------------------------------------------------------

TEST_F(AgentSandboxTest, InputIsEmptyUnlessAskedFor) {
  const ExecResult result = run(shell("wc -c; readlink /proc/self/fd/0"));
  EXPECT_EQ(result.stdout, "0\n/dev/null\n");
  const std::unique_ptr<Process> process = call_->start(shell("cat"), {});
  expect_refusal<InvalidArgument>([&] { process->write_stdin(std::string_view("x"), {}); },
                                  "not piped");
  process->close_stdin();
  EXPECT_EQ(process->wait({}).exit_code, 0);
}

TEST_F(AgentSandboxTest, PipedInputArrivesWholeWhileOutputIsPumped) {
  ExecRequest request = shell("cat");
  request.stdin_mode = StdinMode::piped;
  request.capture_bytes = 8 << 20;
  std::string input;
  for (int i = 0; input.size() < (4U << 20); ++i) input += std::to_string(i) + "\n";
  const std::unique_ptr<Process> process = call_->start(request, {});
  process->write_stdin(input, {});
  process->close_stdin();
  process->close_stdin();
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stdout == input);
  EXPECT_THROW(process->write_stdin(std::string_view("x"), {}), InvalidArgument);
}

TEST_F(AgentSandboxTest, WritingToAProgramThatEndedOrClosedItsInputIsQuiet) {
  const std::string much(1 << 20, 'x');
  {
    ExecRequest request = shell("exit 3");
    request.stdin_mode = StdinMode::piped;
    const std::unique_ptr<Process> process = call_->start(request, {});
    process->write_stdin(much, {});
    EXPECT_EQ(process->wait({}).exit_code, 3);
    process->write_stdin(much, {});
  }
  ExecRequest request = shell("echo closed; exec 0<&-; exec sleep 1000");
  request.stdin_mode = StdinMode::piped;
  const std::unique_ptr<Process> process = call_->start(request, {});
  process->write_stdin(much, {});  // returns although the program lives
  process->signal(SIGKILL);
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.signal, "SIGKILL");
  EXPECT_EQ(result.stdout, "closed\n");
}

TEST_F(AgentSandboxTest, ForwardedInputComesFromTheDescriptorAndItsEndIsTheEnd) {
  const std::string path = plain_.root() / "input";
  const std::string input(300'000, 'i');
  std::ofstream(path) << input;
  const sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ExecRequest request = shell("wc -c");
  request.stdin_mode = StdinMode::forwarded;
  request.stdin_descriptor = file.get();
  EXPECT_EQ(run(request).stdout, "300000\n");
  EXPECT_EQ(fcntl(file.get(), F_GETFL) & O_NONBLOCK, 0);
}

// EX-11: a silent, open input never holds up the end.
TEST_F(AgentSandboxTest, EX_11_ForwardedInputThatStaysOpenDoesNotDelayTheEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const sys::UniqueFd reader(ends[0]);
  const sys::UniqueFd writer(ends[1]);
  ExecRequest request = shell("echo hello");
  request.stdin_mode = StdinMode::forwarded;
  request.stdin_descriptor = reader.get();
  EXPECT_EQ(run(request).stdout, "hello\n");
  request.command = ShellLine{"exec sleep 1000"};
  request.timeout = 200ms;
  EXPECT_EQ(run(request).outcome, Outcome::timed_out);
}

// -- Bounds and ends by the host -----------------------------------------------------------------

TEST_F(AgentSandboxTest, AStopFromAnotherThreadIsTheOutcomeCancelled) {
  std::stop_source source;
  ExecRequest request = shell("echo begun; exec sleep 1000");
  // The stop comes when the program shows that it runs.
  std::jthread stopper;
  request.on_output = [&](OutputStream, std::span<const char>) {
    stopper = std::jthread([&] { source.request_stop(); });
  };
  CallControl control;
  control.stop = source.get_token();
  const ExecResult result = call_->exec(request, control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_EQ(result.stdout, "begun\n");
  EXPECT_TRUE(result.stopped_known);
}

TEST_F(AgentSandboxTest, AStopRequestedBeforeStartsNothing) {
  std::stop_source source;
  source.request_stop();
  CallControl control;
  control.stop = source.get_token();
  const ExecResult result = call_->exec(shell("touch ran"), control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_EQ(run(shell("ls")).stdout, "");
  EXPECT_THROW(call_->stat_file("x", call_->directory(), control), SandboxCancelled);
  EXPECT_THROW(plain_.sandbox().open_call({}, control), SandboxCancelled);
}

// Input that the program does not take must not stand before the cancel.
TEST_F(AgentSandboxTest, AStopGetsPastInputThatNobodyReads) {
  std::stop_source source;
  CallControl control;
  control.stop = source.get_token();
  ExecRequest request = shell("echo ready; exec sleep 1000");
  request.stdin_mode = StdinMode::piped;
  std::jthread stopper;
  request.on_output = [&](OutputStream, std::span<const char>) {
    stopper = std::jthread([&] { source.request_stop(); });
  };
  const std::unique_ptr<Process> process = call_->start(request, {});
  process->write_stdin(std::string(4 << 20, 'x'), control);
  const ExecResult result = process->wait(control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_TRUE(result.stopped_known);
}

TEST_F(AgentSandboxTest, TheDeadlineBoundsTheProviderAndEndsTheProgram) {
  ExecRequest request = shell("echo $$; exec sleep 1000");
  std::string pid;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    pid.assign(bytes.data(), bytes.size() - 1);
  };
  CallControl control;
  control.deadline = Clock::now() + 300ms;
  expect_refusal<SandboxTimeout>([&] { call_->exec(request, control); }, "deadline");
  // The host let go of it; the call's end is when that is known.
  EXPECT_TRUE(call_->close());
  EXPECT_FALSE(is_alive(pid));
}

TEST_F(AgentSandboxTest, ASignalReachesTheProgramItself) {
  ExecRequest request =
      shell("trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.01; done");
  std::unique_ptr<Process> process;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    if (bytes[0] == 'r') process->signal(SIGUSR1);
  };
  process = call_->start(request, {});
  EXPECT_THROW(process->signal(0), InvalidArgument);
  EXPECT_THROW(process->signal(65), InvalidArgument);
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.stdout, "ready\ngot it\n");
  process->signal(SIGUSR1);  // quiet when it has ended
  EXPECT_EQ(process->wait({}).stdout, result.stdout);
}

TEST_F(AgentSandboxTest, DestroyingARunningProcessEndsItAndItsTree) {
  std::string pid;
  {
    const std::unique_ptr<Process> process =
        call_->start(shell("sleep 1000 & echo $! > part; mv part pid; wait"), {});
    pid = pid_in("pid");
    EXPECT_TRUE(is_alive(pid));
  }
  EXPECT_FALSE(is_alive(pid));
}

TEST_F(AgentSandboxTest, ClosingACallEndsEverythingInIt) {
  const std::unique_ptr<Process> process =
      call_->start(shell("echo $$ > part; mv part pid; exec sleep 1000"), {});
  const std::string pid = pid_in("pid");
  run(shell("mkdir -p deep/er; touch deep/er/file; chmod 500 deep"));
  EXPECT_TRUE(call_->close());
  EXPECT_TRUE(call_->close());
  EXPECT_FALSE(is_alive(pid));
  EXPECT_FALSE(std::filesystem::exists(call_->directory()));
  EXPECT_THROW(process->wait({}), SandboxUnavailable);
  EXPECT_THROW(run(shell("true")), SandboxUnavailable);
  EXPECT_THROW(call_->stat_file("x", call_->directory(), {}), SandboxUnavailable);
}

TEST_F(AgentSandboxTest, SeveralProgramsRunAtOnceInOneCall) {
  ExecRequest request = shell("cat > /dev/null; echo $0");
  request.stdin_mode = StdinMode::piped;
  const std::unique_ptr<Process> first = call_->start(request, {});
  const std::unique_ptr<Process> second = call_->start(request, {});
  second->close_stdin();
  EXPECT_EQ(second->wait({}).exit_code, 0);
  first->close_stdin();
  EXPECT_EQ(first->wait({}).exit_code, 0);
}

TEST_F(AgentSandboxTest, CallsFromSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::unique_ptr<Call> call = plain_.sandbox().open_call({}, {});
      for (int round = 0; round < 3; ++round) {
        const std::string text = std::to_string(i * 100 + round);
        call->write_file("f", text, call->directory() + "/work", {});
        EXPECT_EQ(call->exec(shell("cat f; ls"), {}).stdout, text + "f\n");
        EXPECT_EQ(call->read_file("f", call->directory() + "/work", 100, {}), text);
      }
      EXPECT_TRUE(call->close());
    });
  }
}

TEST_F(AgentSandboxTest, OneCallsThreadsShareIt) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "f" + std::to_string(i);
      for (int round = 0; round < 5; ++round) {
        call_->write_file(name, name, call_->directory() + "/work", {});
        EXPECT_EQ(run(shell("cat " + name)).stdout, name);
      }
    });
  }
}

// -- Calls ---------------------------------------------------------------------------------------

TEST_F(AgentSandboxTest, ACallIdIsTwelveHexDigitsAndUsedOnce) {
  for (const char* id : {"x", "0123456789abc", "0123456789aX", "../../../../"}) {
    expect_refusal<InvalidArgument>([&] { plain_.sandbox().open_call({id}, {}); }, "12 hex");
  }
  const std::unique_ptr<Call> named = plain_.sandbox().open_call({"0123456789ab"}, {});
  EXPECT_EQ(named->directory(), plain_.work_dir() + "/0123456789ab");
  EXPECT_THROW(plain_.sandbox().open_call({"0123456789ab"}, {}), SandboxUnavailable);
}

TEST_F(AgentSandboxTest, TheSandboxsOwnMethodsAreACallThatLastsOneRequest) {
  Sandbox& sandbox = plain_.sandbox();
  EXPECT_EQ(sandbox.exec(shell("echo hi"), {}).stdout, "hi\n");
  sandbox.write_file("kept", std::string_view("text"), sandbox.info().work_dir, {});
  EXPECT_EQ(sandbox.read_file("kept", sandbox.info().work_dir, 4, {}), "text");
}

TEST_F(AgentSandboxTest, AHostThatForksKeepsItsCalls) {
  const pid_t child = fork();
  if (child == 0) {
    call_.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(run(shell("echo alive")).stdout, "alive\n");
}

}  // namespace
}  // namespace casemate::guest
