// How a run over files ends, and what is left of its streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/over_exec_guest_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using in_process::finished;
using in_process::Operation;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// -- Streams --------------------------------------------------------------------------------------

TEST(OverExec, LeavesOutAStreamThatIsOverTheCapAndSaysHowMuch) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.response_limits = {100, 100, 64}});
  guest.step = [](ScriptedGuest& program) {
    program.print(std::string(61, 'o'), std::string(40, 'e'));
    program.exit();
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.exit_code, 0);
  EXPECT_EQ(ended.result.stderr, std::string(40, 'e'));
  EXPECT_EQ(ended.result.stdout, "");
  EXPECT_EQ(ended.result.stdout_missing_bytes, 61U);
  ASSERT_EQ(ended.notes.size(), 1U);
  EXPECT_NE(ended.notes[0].find("the standard output of the program is left out"),
            std::string::npos);
  EXPECT_NE(ended.notes[0].find("100 bytes"), std::string::npos);
}

TEST(OverExec, KeepsBothStreamsUpToTheCap) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.response_limits = {100, 100, 64}});
  guest.step = [](ScriptedGuest& program) {
    program.print(std::string(60, 'o'), std::string(40, 'e'));
    program.exit();
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.stdout, std::string(60, 'o'));
  EXPECT_TRUE(ended.notes.empty());
}

TEST(OverExec, CutsAStreamToHeadAndTail) {
  ScriptedGuest guest;
  guest.options.capture_bytes = 4;
  guest.step = [](ScriptedGuest& program) {
    program.print("ab......yz");
    program.exit();
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.stdout, "abyz");
  EXPECT_EQ(ended.result.stdout_missing_bytes, 6U);
  EXPECT_EQ(ended.result.stdout_cut_at, 2U);
}

TEST(OverExec, GivesTheExitCodeAlsoWhereTheOutputIsNotReadInTime) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) { program.exit("6"); };
  guest.before = [&](Operation operation, std::string_view path) {
    if (operation == Operation::stat_file && path == guest.layout().standard_output()) {
      throw SandboxTimeout("silent");
    }
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.exit_code, 6);
  ASSERT_EQ(ended.notes.size(), 1U);
  EXPECT_NE(ended.notes[0].find("could not be read in time"), std::string::npos);
}

// -- The launcher ---------------------------------------------------------------------------------

TEST(OverExec, StartsTheLauncherInTheRunDirectoryWithTheTimeThatIsLeft) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) { program.exit(); };
  guest.run();
  const auto commands = guest.sandbox().commands();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0].command, "sh " + guest.layout().launcher());
  EXPECT_EQ(commands[0].directory, guest.layout().run_directory());
  EXPECT_LE(*commands[0].timeout, guest.options.timeout);
  EXPECT_EQ(commands[1].command, "rm -rf -- " + guest.layout().transport_directory());
}

TEST(OverExec, ALauncherThatFailsIsTheResult) {
  ScriptedGuest guest;
  guest.launcher = finished("", 1);
  OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.exit_code, 1);
  EXPECT_EQ(ended.notes,
            std::vector<std::string>{"the program was not started: its launcher failed"});
  EXPECT_FALSE(ended.stop);
  EXPECT_TRUE(guest.cleaned_up());

  ScriptedGuest speaking;
  speaking.launcher = finished("", 127, "sh: not found\n");
  ended = speaking.run();
  EXPECT_EQ(ended.result.stderr, "sh: not found\n");
  EXPECT_TRUE(ended.notes.empty());
}

TEST(OverExec, ALauncherThatTakesTooLongIsATimeoutUnlessTheProgramHasEnded) {
  ScriptedGuest guest;
  guest.launcher = {};
  guest.launcher.outcome = Outcome::timed_out;
  guest.launcher.stdout = kSaysSession;
  OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.outcome, Outcome::timed_out);
  EXPECT_EQ(ended.stop, (ProgramStop{StopSignal::unknown, StopReach::nothing}));
  EXPECT_FALSE(ended.result.stopped_known);

  ScriptedGuest done;
  done.launcher = guest.launcher;
  done.step = [](ScriptedGuest& program) { program.exit("2"); };
  ended = done.run();
  EXPECT_EQ(ended.result.outcome, Outcome::exited);
  EXPECT_EQ(ended.result.exit_code, 2);
  EXPECT_FALSE(ended.stop);
}

TEST(OverExec, WhatALauncherThatWasKilledLeftIsStopped) {
  ScriptedGuest guest;
  guest.launcher = {};
  guest.launcher.outcome = Outcome::signaled;
  guest.launcher.signal = "SIGKILL";
  guest.launcher.stdout = kSaysSession;
  guest.record("4711", "4710");
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.outcome, Outcome::signaled);
  EXPECT_EQ(guest.kills(), std::vector<std::string>{"-KILL -4710"});
  EXPECT_TRUE(guest.cleaned_up());
}

TEST(OverExec, ATimeoutBeforeTheStartIsKnownToHaveLeftNothing) {
  ScriptedGuest guest;
  guest.options.timeout = nanoseconds(1);
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.outcome, Outcome::timed_out);
  EXPECT_EQ(ended.stop, (ProgramStop{StopSignal::absent, StopReach::nothing}));
  EXPECT_TRUE(ended.result.stopped_known);
}

// -- Time and stop --------------------------------------------------------------------------------

TEST(OverExec, ATimeoutIsAnOutcomeThatKeepsWhatWasPrinted) {
  ScriptedGuest guest;
  guest.options.timeout = std::chrono::milliseconds(500);
  guest.step = [](ScriptedGuest& program) {
    program.print("so far\n", "a warning\n");
    program.record("4711", "4710");
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.outcome, Outcome::timed_out);
  EXPECT_FALSE(ended.result.exit_code);
  EXPECT_EQ(ended.result.limit, Limit::time);
  EXPECT_EQ(ended.result.stdout, "so far\n");
  EXPECT_EQ(ended.result.stderr, "a warning\n");
  EXPECT_GE(ended.result.wall, guest.options.timeout);
  EXPECT_EQ(ended.stop, (ProgramStop{StopSignal::sent, StopReach::group}));
  EXPECT_FALSE(ended.result.stopped_known);  // sent is not stopped
  EXPECT_EQ(guest.kills(), std::vector<std::string>{"-KILL -4710"});
  EXPECT_TRUE(guest.cleaned_up());
}

TEST(OverExec, ATimeoutDoesNotWaitForAFunction) {
  Gate gate;
  ScriptedGuest guest;
  guest.options.timeout = std::chrono::milliseconds(500);
  guest.registry = registry_of({tool_of("echo", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value();
  })});
  guest.step = [](ScriptedGuest& program) { program.call_echo(1); };
  EXPECT_EQ(guest.run().result.outcome, Outcome::timed_out);
  EXPECT_EQ(gate.arrived(), 1);
  gate.open();
}

TEST(OverExec, StoppingGivesTheOutcomeCancelledAndStopsTheProgram) {
  ScriptedGuest guest;
  std::stop_source stop;
  guest.step = [&](ScriptedGuest& program) {
    program.print("so far\n");
    program.record("4711");
    stop.request_stop();
  };
  const OverExecResult ended = guest.run({.stop = stop.get_token()});
  EXPECT_EQ(ended.result.outcome, Outcome::cancelled);
  EXPECT_FALSE(ended.result.limit);
  EXPECT_EQ(ended.result.stdout, "so far\n");
  EXPECT_EQ(guest.kills(), std::vector<std::string>{"-KILL 4711"});
  EXPECT_TRUE(guest.cleaned_up());
}

TEST(OverExec, AStopIsTheOutcomeAlsoOfAProgramThatIsFoundToHaveEnded) {
  ScriptedGuest guest;
  std::stop_source stop;
  guest.before = [&](Operation, std::string_view path) {
    if (path == guest.layout().request(1)) {
      stop.request_stop();
    } else if (path == guest.layout().exit_code() && stop.stop_requested()) {
      guest.exit("3");
    }
  };
  const OverExecResult ended = guest.run({.stop = stop.get_token()});
  EXPECT_EQ(ended.result.outcome, Outcome::cancelled);
  EXPECT_FALSE(ended.result.exit_code);
  EXPECT_FALSE(ended.stop);
  EXPECT_TRUE(guest.kills().empty());
}

TEST(OverExec, ARequestThatIsReadAsTheStopComesIsNotServed) {
  ScriptedGuest guest;
  std::stop_source stop;
  guest.step = [](ScriptedGuest& program) { program.call_echo(1); };
  guest.before = [&](Operation operation, std::string_view path) {
    if (operation == Operation::read_file && path == guest.layout().request(1)) stop.request_stop();
  };
  EXPECT_EQ(guest.run({.stop = stop.get_token()}).result.outcome, Outcome::cancelled);
  EXPECT_EQ(guest.host_run().counters().dispatched, 0U);
}

TEST(OverExec, AProviderThatGivesUpByItselfIsHeard) {
  ScriptedGuest guest;
  guest.before = [&](Operation, std::string_view path) {
    if (path == guest.layout().request(1)) throw SandboxCancelled("not by us");
  };
  expect_refusal<SandboxCancelled>([&] { guest.run(); }, "not by us");
  EXPECT_TRUE(guest.cleaned_up());
}

TEST(OverExec, AStopWakesTheHostBetweenTwoLooks) {
  ScriptedGuest guest;
  guest.options.poll_interval = seconds(50);
  std::stop_source stop;
  std::jthread stopper;
  guest.step = [&](ScriptedGuest& program) {
    if (program.store().contains(program.layout().pid())) return;
    program.record("4711");
    stopper = std::jthread([&] { stop.request_stop(); });
  };
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(guest.run({.stop = stop.get_token()}).result.outcome, Outcome::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(25));
}

TEST(OverExec, TheCallersOwnDeadlineIsTheProviders) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) { program.record("4711"); };
  expect_refusal<SandboxTimeout>([&] {
    guest.run({.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500)});
  });
  EXPECT_EQ(guest.kills().size(), 1U);
  EXPECT_TRUE(guest.cleaned_up());
}

TEST(OverExec, AProviderThatFailsIsHeardAfterStoppingAndCleaningUp) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) { program.record("4711", "4710"); };
  guest.before = [&](Operation, std::string_view path) {
    if (path == guest.layout().request(1)) throw SandboxUnavailable("gone");
  };
  expect_refusal<SandboxUnavailable>([&] { guest.run(); }, "gone");
  EXPECT_EQ(guest.kills(), std::vector<std::string>{"-KILL -4710"});
  EXPECT_TRUE(guest.cleaned_up());
}

TEST(OverExec, AProviderThatFailsAfterTheEndStopsNothing) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) {
    program.record("4711");
    program.exit();
  };
  guest.before = [&](Operation, std::string_view path) {
    if (path == guest.layout().standard_output()) throw SandboxUnavailable("gone");
  };
  expect_refusal<SandboxUnavailable>([&] { guest.run(); }, "gone");
  EXPECT_TRUE(guest.kills().empty());
  EXPECT_TRUE(guest.cleaned_up());
}

// The reference's numbers: 2 + 3 x 2 + 10.
TEST(OverExec, MayTakeEighteenSecondsPastTheTimeoutAndNotMore) {
  EXPECT_EQ(kOverExecAnswerGrace, seconds(2));
  EXPECT_EQ(kOverExecLastLookGrace + kOverExecNumbersGrace + kOverExecSignalGrace, 3 * seconds(2));
  EXPECT_EQ(kOverExecCleanupGrace, seconds(10));
  EXPECT_EQ(kOverExecMostOvertime, seconds(18));
}

}  // namespace
}  // namespace casemate
