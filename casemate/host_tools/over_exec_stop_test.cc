// How a program that runs on is stopped, and what is removed after a run.

#include "casemate/host_tools/over_exec_stop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

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

// -- Stopping -------------------------------------------------------------------------------------

struct StopCase {
  std::optional<std::string> pid;
  std::optional<std::string> session;
  bool announced;
  ProgramStop expected;
  std::string target;
};

TEST(OverExec, SignalsWhomTheNumbersNameAndNobodyByAForgedOne) {
  using enum StopSignal;
  using enum StopReach;
  const std::vector<StopCase> cases{
      {"12", "11", true, {sent, group}, "-11"},
      {"12", std::nullopt, true, {sent, program}, "12"},
      // The file alone is the guest's word.
      {"12", "11", false, {sent, program}, "12"},
      // -1 is everybody, and 0 one's own group.
      {"12", "1", true, {sent, program}, "12"},
      {"12", "2", true, {sent, group}, "-2"},
      {"12", "0", true, {sent, program}, "12"},
      {"12", "11; reboot", true, {sent, program}, "12"},
      {std::nullopt, std::nullopt, true, {unrecorded, nothing}, ""},
      {"", "11", true, {refused, nothing}, ""},
      {"0", "11", true, {refused, nothing}, ""},
      {"-1", "11", true, {refused, nothing}, ""},
      {"12\n", "11", true, {refused, nothing}, ""},
      {"1 2", "11", true, {refused, nothing}, ""},
      {"12; reboot", "11", true, {refused, nothing}, ""},
      {"99999999999", "11", true, {refused, nothing}, ""},
      {std::string(33, '1'), "11", true, {refused, nothing}, ""},
  };
  for (const StopCase& each : cases) {
    ScriptedGuest guest;
    if (!each.announced) guest.launcher = finished("casemate-tools: session, almost\n");
    guest.options.timeout = std::chrono::milliseconds(100);
    guest.step = [&](ScriptedGuest& program) {
      if (each.pid) program.record(*each.pid, each.session);
    };
    EXPECT_EQ(guest.run().stop, each.expected) << each.pid.value_or("none");
    EXPECT_EQ(guest.kills(), each.target.empty()
                                 ? std::vector<std::string>()
                                 : std::vector<std::string>{"-KILL " + each.target});
  }
}

TEST(OverExec, AKillThatFailsWasRefused) {
  ScriptedGuest guest;
  guest.kill = finished("", 1);
  guest.options.timeout = std::chrono::milliseconds(100);
  guest.step = [](ScriptedGuest& program) { program.record("12"); };
  EXPECT_EQ(guest.run().stop, (ProgramStop{StopSignal::refused, StopReach::nothing}));
}

TEST(OverExec, NumbersThatCannotBeLookedForAreUnknown) {
  ScriptedGuest guest;
  guest.options.timeout = std::chrono::milliseconds(100);
  guest.before = [&](Operation, std::string_view path) {
    if (path == guest.layout().pid()) throw SandboxUnavailable("gone");
  };
  EXPECT_EQ(guest.run().stop, (ProgramStop{StopSignal::unknown, StopReach::nothing}));
}

// -- Removal --------------------------------------------------------------------------------------

TEST(OverExec, AFailedRemovalIsLoggedAndChangesNothing) {
  ScriptedGuest guest;
  KeptLog log;
  guest.options.log = log.hook();
  guest.rm = finished("", 1, "rm: busy\n");
  guest.step = [](ScriptedGuest& program) { program.exit("0"); };
  EXPECT_EQ(guest.run().result.exit_code, 0);
  EXPECT_NE(log.text().find("could not be removed: rm: exited 1: rm: busy"), std::string::npos)
      << log.text();
}

TEST(ReclaimRun, RemovesTheRunAndSaysWhetherItDid) {
  ScriptedGuest guest;
  const ExecAndFiles access(guest.call());
  guest.rm = finished("", 1);
  EXPECT_FALSE(reclaim_run(access, guest.layout()));
  EXPECT_TRUE(guest.store().contains(guest.layout().run_directory()));
  guest.rm = finished();
  EXPECT_TRUE(reclaim_run(access, guest.layout()));
  EXPECT_FALSE(guest.store().contains(guest.layout().run_directory()));
}

TEST(ReclaimRun, RefusesATimeoutThatIsNotAboveNothing) {
  ScriptedGuest guest;
  for (const nanoseconds timeout : {nanoseconds(0), nanoseconds(-1)}) {
    expect_refusal<InvalidArgument>(
        [&] { reclaim_run(ExecAndFiles(guest.call()), guest.layout(), timeout); }, "timeout");
  }
  EXPECT_TRUE(guest.sandbox().commands().empty());
}

TEST(ReclaimRun, NeverRemovesWhatIsNextToTheRoot) {
  ScriptedGuest guest;
  const ExecAndFiles access(guest.call());
  EXPECT_FALSE(reclaim_run(access, guest_run_layout("/workspace")));
  EXPECT_FALSE(reclaim_run(access, guest_run_layout("/")));
  const auto soon = std::chrono::steady_clock::now() + seconds(10);
  for (const char* path : {"", "/", "/a", "a/b", "/a/../b/c", "/a/b/", "/a//b"}) {
    EXPECT_TRUE(remove_guest_tree(access, path, soon)) << path;
  }
  EXPECT_TRUE(guest.sandbox().commands().empty());
}

}  // namespace
}  // namespace casemate
