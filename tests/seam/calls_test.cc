// Calls: bounds of the host's, threads, and their end.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/seam/seam.h"
#include "tests/support/expect_refusal.h"

namespace casemate::seam {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

class Calls : public Seam {};

INSTANTIATE_TEST_SUITE_P(Every, Calls, testing::ValuesIn(providers()), provider_name);

TEST_P(Calls, AStopFromAnotherThreadIsTheOutcomeCancelled) {
  StopFromElsewhere stop;
  ExecRequest request = shell("echo begun; exec sleep 1000");
  // The stop comes when the program shows that it runs.
  request.on_output = [&](OutputStream, std::span<const char>) { stop.request(); };
  const ExecResult result = call().exec(request, stop.control());
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_EQ(result.stdout, "begun\n");
  EXPECT_TRUE(result.stopped_known);
}

TEST_P(Calls, WhatWasReadyForAProgramServesTheFirstOneAndTheNextComesAsEver) {
  CallProfile profile;
  profile.starts_program = true;
  const std::unique_ptr<Call> used = sandbox().open_call(profile, {});
  used->write_file("work/seen", "before\n"s, used->directory(), {});
  EXPECT_EQ(used->exec(shell("cat seen; echo first > seen"), {}).stdout, "before\n");
  EXPECT_EQ(used->exec(shell("cat seen"), {}).stdout, "first\n");
  EXPECT_TRUE(used->close());
  const std::unique_ptr<Call> unused = sandbox().open_call(profile, {});
  EXPECT_TRUE(unused->close()) << "what waited for a program ends with the call";
}

TEST_P(Calls, OneThatEndsWithItsProgramCanBeClosedWhileThatStillRuns) {
  CallProfile profile;
  profile.starts_program = true;
  profile.ends_with_program = true;
  for (int round = 0; round < 4; ++round) {
    const std::unique_ptr<Call> whole = sandbox().open_call(profile, {});
    whole->write_file("work/seen", "before\n"s, whole->directory(), {});
    const ExecResult result =
        whole->exec(shell("cat seen; sleep 1000 < /dev/null > /dev/null 2>&1 &"), {});
    EXPECT_EQ(result.stdout, "before\n");
    EXPECT_TRUE(result.stopped_known);
    EXPECT_TRUE(whole->close());
    const std::unique_ptr<Call> cut = sandbox().open_call(profile, {});
    const std::unique_ptr<Process> process = cut->start(shell("exec sleep 1000"), {});
    EXPECT_TRUE(cut->close());
    EXPECT_THROW(process->wait({}), SandboxUnavailable);
    const std::unique_ptr<Call> unused = sandbox().open_call(profile, {});
    EXPECT_TRUE(unused->close());
  }
  // What the sandbox's own calls leave, which end with their program.
  EXPECT_EQ(sandbox().exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_P(Calls, AStopRequestedBeforeStartsNothing) {
  StopFromElsewhere stop;
  stop.request_and_wait();
  const CallControl control = stop.control();
  const ExecResult result = call().exec(shell("touch ran"), control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_EQ(run(shell("ls")).stdout, "");
  EXPECT_THROW(call().stat_file("x", call().directory(), control), SandboxCancelled);
  EXPECT_THROW(sandbox().open_call({}, control), SandboxCancelled);
}

// Input that the program does not take must not stand before the cancel.
TEST_P(Calls, AStopGetsPastInputThatNobodyReads) {
  StopFromElsewhere stop;
  const CallControl control = stop.control();
  ExecRequest request = shell("echo ready; exec sleep 1000");
  request.stdin_mode = StdinMode::piped;
  request.on_output = [&](OutputStream, std::span<const char>) { stop.request(); };
  const std::unique_ptr<Process> process = call().start(request, {});
  process->write_stdin(std::string(4 << 20, 'x'), control);
  const ExecResult result = process->wait(control);
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_TRUE(result.stopped_known);
}

TEST_P(Calls, CallsFromSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::unique_ptr<Call> call = sandbox().open_call({}, {});
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

TEST_P(Calls, OneCallsThreadsShareIt) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "f" + std::to_string(i);
      for (int round = 0; round < 5; ++round) {
        call().write_file(name, name, call().directory() + "/work", {});
        EXPECT_EQ(run(shell("cat " + name)).stdout, name);
      }
    });
  }
}

TEST_P(Calls, ACallIdIsTwelveHexDigitsAndUsedOnce) {
  for (const char* id : {"x", "0123456789abc", "0123456789aX", "../../../../"}) {
    expect_refusal<InvalidArgument>([&] { sandbox().open_call({id}, {}); }, "12 lower-case hex");
  }
  const std::unique_ptr<Call> named = sandbox().open_call({"0123456789ab"}, {});
  EXPECT_EQ(named->directory(), sandbox().info().work_dir + "/0123456789ab");
}

TEST_P(Calls, AnIdThatIsOpenIsRefusedAndItsCallLivesOn) {
  const std::unique_ptr<Call> first = sandbox().open_call({"0123456789ab"}, {});
  first->write_file("f", std::string_view("kept"), first->directory() + "/work", {});
  expect_refusal<InvalidArgument>([&] { sandbox().open_call({"0123456789ab"}, {}); },
                                  "0123456789ab is open");
  const ExecResult result =
      first->exec(shell("cat f; exec python3 -c 'print(len(bytes(1 << 20)))'"), {});
  EXPECT_EQ(result.stdout, "kept1048576\n");
  EXPECT_TRUE(first->close());
  EXPECT_TRUE(sandbox().open_call({"0123456789ab"}, {})->close());
}

TEST_P(Calls, TheSandboxsOwnMethodsAreACallThatLastsOneRequest) {
  EXPECT_EQ(sandbox().exec(shell("echo hi"), {}).stdout, "hi\n");
  const std::string directory = sandbox().info().work_dir;
  sandbox().write_file("kept", std::string_view("text"), directory, {});
  EXPECT_EQ(sandbox().read_file("kept", directory, 4, {}), "text");
}

// -- The end of a call ---------------------------------------------------------------------------

TEST_P(Calls, ClosingACallEndsEverythingInIt) {
  const std::unique_ptr<Process> process = call().start(
      python(kHoldLock + "import time\nopen('ready', 'w').write('x')\ntime.sleep(1000)"s), {});
  awaited("ready");
  EXPECT_TRUE(lock_is_held());
  guest("mkdir -p deep/er; touch deep/er/file; chmod 500 deep");
  EXPECT_TRUE(call().close());
  EXPECT_TRUE(call().close());
  expect_refusal<SandboxUnavailable>([&] { process->wait({}); }, "the call was closed");
  EXPECT_THROW(run(shell("true")), SandboxUnavailable);
  EXPECT_THROW(call().stat_file("x", call().directory(), {}), SandboxUnavailable);
  const std::string directory = call().directory();
  call_ = sandbox().open_call({}, {});
  EXPECT_FALSE(lock_is_held());
  EXPECT_FALSE(call().stat_file(directory, sandbox().info().work_dir, {}));
}

TEST_P(Calls, DroppingACallClosesIt) {
  const std::string directory = call().directory();
  call_ = sandbox().open_call({}, {});
  EXPECT_FALSE(call().stat_file(directory, sandbox().info().work_dir, {}));
}

TEST_P(Calls, TheDeadlineBoundsTheProviderAndEndsTheProgram) {
  CallControl control;
  control.deadline = Clock::now() + 500ms;
  expect_refusal<SandboxTimeout>(
      [&] { call().exec(python(kHoldLock + "import time\ntime.sleep(1000)"s), control); },
      "deadline");
  // The host let go of it; the call's end is when that is known.
  EXPECT_TRUE(call().close());
  call_ = sandbox().open_call({}, {});
  EXPECT_FALSE(lock_is_held());
}

TEST_P(Calls, AnExceptionFromTheCallbackEndsTheProgramAndReachesTheCaller) {
  struct Enough {};
  ExecRequest request = python(kHoldLock + "import time\nprint('x')\ntime.sleep(1000)"s);
  request.on_output = [](OutputStream, std::span<const char>) { throw Enough{}; };
  const std::unique_ptr<Process> process = call().start(request, {});
  EXPECT_THROW(process->wait({}), Enough);
  EXPECT_FALSE(lock_is_held());
  EXPECT_THROW(process->wait({}), Enough);
}

TEST_P(Calls, AHostThatForksKeepsItsCalls) {
  const pid_t child = fork();
  if (child == 0) {
    call_.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(run(shell("echo alive")).stdout, "alive\n");
}

}  // namespace
}  // namespace casemate::seam
