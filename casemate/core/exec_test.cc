#include "casemate/core/exec.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace casemate {
namespace {

TEST(Signals, NamesAndNumbersBelongTogether) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  for (int number = 1; number <= 64; ++number) {
    EXPECT_EQ(signal_number(signal_name(number)), number);
  }
}

TEST(Signals, OneWithoutANameIsWrittenByItsNumber) {
  EXPECT_EQ(signal_name(34), "SIG34");
  EXPECT_EQ(signal_name(64), "SIG64");
  EXPECT_EQ(signal_name(0), "SIG0");
}

TEST(Signals, AnUnknownNameHasNoNumber) {
  for (const char* name : {"", "KILL", "sigkill", "SIG", "SIG0", "SIG9", "SIG65", "SIG34 "}) {
    EXPECT_EQ(signal_number(name), std::nullopt) << name;
  }
}

ExecResult ended(Outcome outcome) {
  ExecResult result;
  result.outcome = outcome;
  return result;
}

// OUT-11
TEST(ShellExitStatus, IsWhatAShellUserExpects) {
  ExecResult exited = ended(Outcome::exited);
  for (const int code : {0, 1, 44, 255}) {
    exited.exit_code = code;
    EXPECT_EQ(shell_exit_status(exited), code);
  }
  ExecResult signaled = ended(Outcome::signaled);
  signaled.signal = "SIGKILL";
  EXPECT_EQ(shell_exit_status(signaled), 137);
  signaled.signal = "SIGSEGV";
  EXPECT_EQ(shell_exit_status(signaled), 139);
  signaled.signal = "SIG34";
  EXPECT_EQ(shell_exit_status(signaled), 162);
  EXPECT_EQ(shell_exit_status(ended(Outcome::timed_out)), 124);
  EXPECT_EQ(shell_exit_status(ended(Outcome::out_of_memory)), 137);
  EXPECT_EQ(shell_exit_status(ended(Outcome::cancelled)), 130);
}

TEST(ShellExitStatus, AMissingStatusIsNeverSuccess) {
  EXPECT_EQ(shell_exit_status(ended(Outcome::exited)), 125);
  EXPECT_EQ(shell_exit_status(ended(Outcome::signaled)), 125);
  ExecResult odd = ended(Outcome::signaled);
  odd.signal = "SIGBOGUS";
  EXPECT_EQ(shell_exit_status(odd), 125);
}

TEST(ExecResult, ClaimsNothingByDefault) {
  const ExecResult result;
  EXPECT_FALSE(result.exit_code);
  EXPECT_FALSE(result.stopped_known);
  EXPECT_EQ(ExecRequest{}.capture_bytes, 262144U);
}

}  // namespace
}  // namespace casemate
