// Standard streams: every byte, in order, kept apart, whatever the other side does.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"
#include "tests/seam/seam.h"
#include "tests/support/expect_refusal.h"

namespace casemate::seam {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

class Streams : public Seam {};

INSTANTIATE_TEST_SUITE_P(Every, Streams, testing::ValuesIn(providers()), provider_name);

TEST_P(Streams, KeepsTheStreamsApartAndTheExitCode) {
  const ExecResult result = run(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(result.stdout, "out\n");
  EXPECT_EQ(result.stderr, "err\n");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_FALSE(result.signal);
}

// EX-07, as far as it is the pump's: what was printed is there.
TEST_P(Streams, EX_07_OutputBeforeTheTimeoutIsKept) {
  const ExecResult result =
      run_out(shell("echo step 1 ok; echo oops >&2; echo x > ready; exec sleep 1000"), 200ms);
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_EQ(result.stdout, "step 1 ok\n");
  EXPECT_EQ(result.stderr, "oops\n");
}

// The same by the case's own program.
TEST_P(Streams, EX_05_NothingIsLostByAnAbruptExit) {
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

TEST_P(Streams, MuchOutputThroughASmallCaptureKeepsHeadAndTail) {
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

TEST_P(Streams, TheCallbackGetsEveryByteInOrder) {
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

TEST_P(Streams, TheCallbackIsNotCalledBeforeWait) {
  bool waiting = false;
  ExecRequest request = shell("echo early");
  request.on_output = [&](OutputStream, std::span<const char>) { EXPECT_TRUE(waiting); };
  for (int round = 0; round < 50; ++round) {
    waiting = false;
    const std::unique_ptr<Process> process = call().start(request, {});
    waiting = true;
    EXPECT_EQ(process->wait({}).stdout, "early\n");
  }
}

TEST_P(Streams, InputIsEmptyUnlessAskedFor) {
  const ExecResult result = run(shell("wc -c; readlink /proc/self/fd/0"));
  EXPECT_EQ(result.stdout, "0\n/dev/null\n");
  const std::unique_ptr<Process> process = call().start(shell("cat"), {});
  expect_refusal<InvalidArgument>([&] { process->write_stdin(std::string_view("x"), {}); },
                                  "not piped");
  process->close_stdin();
  EXPECT_EQ(process->wait({}).exit_code, 0);
}

TEST_P(Streams, PipedInputArrivesWholeWhileOutputIsPumped) {
  ExecRequest request = shell("cat");
  request.stdin_mode = StdinMode::piped;
  request.capture_bytes = 8 << 20;
  std::string input;
  for (int i = 0; input.size() < (4U << 20); ++i) input += std::to_string(i) + "\n";
  const std::unique_ptr<Process> process = call().start(request, {});
  process->write_stdin(input, {});
  process->close_stdin();
  process->close_stdin();
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stdout == input);
  EXPECT_THROW(process->write_stdin(std::string_view("x"), {}), InvalidArgument);
}

TEST_P(Streams, WritingToAProgramThatEndedOrClosedItsInputIsQuiet) {
  const std::string much(1 << 20, 'x');
  {
    ExecRequest request = shell("exit 3");
    request.stdin_mode = StdinMode::piped;
    const std::unique_ptr<Process> process = call().start(request, {});
    process->write_stdin(much, {});
    EXPECT_EQ(process->wait({}).exit_code, 3);
    process->write_stdin(much, {});
  }
  ExecRequest request = shell("echo closed; exec 0<&-; exec sleep 1000");
  request.stdin_mode = StdinMode::piped;
  const std::unique_ptr<Process> process = call().start(request, {});
  process->write_stdin(much, {});  // returns although the program lives
  process->signal(SIGKILL);
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.signal, "SIGKILL");
  EXPECT_EQ(result.stdout, "closed\n");
}

TEST_P(Streams, ForwardedInputComesFromTheDescriptorAndItsEndIsTheEnd) {
  const std::string path = testing::TempDir() + "casemate-input-" + std::to_string(getpid());
  const std::string input(300'000, 'i');
  std::ofstream(path) << input;
  const sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::filesystem::remove(path);
  ExecRequest request = shell("wc -c");
  request.stdin_mode = StdinMode::forwarded;
  request.stdin_descriptor = file.get();
  EXPECT_EQ(run(request).stdout, "300000\n");
  EXPECT_EQ(fcntl(file.get(), F_GETFL) & O_NONBLOCK, 0);
}

// EX-11: a silent, open input never holds up the end.
TEST_P(Streams, EX_11_ForwardedInputThatStaysOpenDoesNotDelayTheEnd) {
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

// EX-05: 63,000 bytes are in the pipe when the program is gone, and something still holds it open.
TEST_P(Streams, EX_05_NothingInThePipeIsLostAndNobodyWaitsForItsEnd) {
  std::string expected;
  for (int i = 0; i < 9000; ++i) {
    const std::string digits = std::to_string(i);
    expected += std::string(6 - digits.size(), '0') + digits + "\n";
  }
  call().write_file("data", expected, work(), {});
  for (int round = 0; round < 200; ++round) {
    const auto begin = Clock::now();
    const ExecResult result = run(shell("sleep 1000 & cat data"));
    ASSERT_EQ(result.stdout.size(), 63'000U) << round;
    ASSERT_EQ(result.stdout, expected);
    ASSERT_EQ(result.exit_code, 0);
    ASSERT_LT(Clock::now() - begin, 10s);
  }
}

// A host that does not read holds up the program, never its timeout.
TEST_P(Streams, ASlowReaderLosesNothingAndTheTimeoutStillBites) {
  ExecRequest request = python(kHoldLock + R"(
written = 0
while True:
    written += os.write(1, b'y' * 1000)
    if written == 70000: open('ready', 'w').write('x')
)"s);
  std::unique_ptr<Process> process;
  // Four times as much time where it was up before the program had come to write.
  for (auto time = 500ms; time < 1min; time *= 4) {
    process.reset();
    guest("rm -f ready");
    request.timeout = time;
    process = call().start(request, {});
    ExecRequest come = shell("until [ -s ready ]; do sleep 0.01; done");
    come.timeout = time;
    if (run(come).exit_code == 0) break;
  }
  // Nobody is in wait: pipe and socket fill up, the program blocks, its time runs out.
  await_lock();
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.outcome, Outcome::timed_out);
  EXPECT_GE(result.wall, 500ms);
  const std::uint64_t bytes = result.stdout.size() + result.stdout_missing_bytes;
  EXPECT_GT(bytes, 64U * 1024);
  EXPECT_LT(bytes, 2U * 1024 * 1024);
}

}  // namespace
}  // namespace casemate::seam
