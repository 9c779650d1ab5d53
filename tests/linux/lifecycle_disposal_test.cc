// Who ends a sandbox, and when another takes its place.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "casemate/core/spec.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/state_directory.h"
#include "tests/linux/lifecycle.h"
#include "tests/linux/other_process.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

namespace fs = std::filesystem;

TEST_F(LinuxLifecycle, ADisposalCountsWhatOnlyTheTableStillHeld) {
  for (int round = 0; round < 30; ++round) {
    acquire(key(), spec());
    ASSERT_EQ(backend().dispose_scope("scope", "thread"), 1) << round;
  }
}

TEST_F(LinuxLifecycle, ASandboxOutlivesItsHandlesAndIsDisposedOnce) {
  const std::string id = acquire(key(), spec())->info().id;
  EXPECT_EQ(acquire(key(), spec())->exec(shell("echo kept > ~/kept"), {}).exit_code, 0);
  const auto third = acquire(key(), spec());
  EXPECT_TRUE(third->info().reused);
  EXPECT_EQ(third->info().id, id);
  EXPECT_EQ(third->exec(shell("cat ~/kept"), {}).stdout, "kept\n");
  EXPECT_EQ(backend().dispose_scope("scope", "thread"), 1);
  EXPECT_EQ(backend().dispose_scope("scope", "thread"), 0);
  expect_refusal<SandboxUnavailable>([&] { third->exec(shell("true"), {}); }, "acquire it again");
}

TEST_F(LinuxLifecycle, WhatAnotherProcessDisposedIsNoLongerHeld) {
  const auto open_descriptors = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_descriptors();
  for (int i = 0; i < 5; ++i) acquire(key(std::to_string(i)), spec());
  EXPECT_GE(open_descriptors(), before + 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(another_backend()->dispose_scope("scope", std::to_string(i)), 1);
  }
  EXPECT_TRUE(backend().list().empty());
  EXPECT_LE(open_descriptors(), before + 1) << "the keeper's socket";
}

// Its keeper can remove what is left only once, and nobody may ever ask for its key again.
TEST_F(LinuxLifecycle, WhatAnEndedOneCouldNotLeaveIsFoundByAHostThatLivesOn) {
  NEEDS_CONTROL_GROUPS();
  const std::string id = acquire(key(), spec())->info().id;
  const pid_t agent = agent_of(sandbox_directories().at(0));
  const std::vector<std::string> groups = control_groups_of(id);
  ASSERT_FALSE(groups.empty());
  const OtherProcess stranger([](int channel) { OtherProcess::hear(channel); });
  // In one of its own, for with version 2 nobody may be in a group that has others below it.
  ASSERT_TRUE(fs::create_directory(groups[0] + "/stranger"));
  std::ofstream(groups[0] + "/stranger/cgroup.procs") << stranger.pid() << std::flush;
  ASSERT_EQ(kill(agent, SIGKILL), 0);
  ASSERT_TRUE(wait_until_gone(agent));
  // Made by the same keeper, which has seen to the first by then.
  acquire(key("other"), spec());
  ASSERT_EQ(control_groups_of(id), std::vector<std::string>{groups[0]});
  stranger.say("go");
  ASSERT_TRUE(wait_until_gone(stranger.pid()));
  for (int i = 0; i < 1000 && !control_groups_of(id).empty(); ++i) {
    EXPECT_EQ(backend().dispose_scope("scope", "nobody"), 0);
  }
  EXPECT_EQ(control_groups_of(id), std::vector<std::string>{});
  EXPECT_EQ(sandbox_directories().size(), 1U);
}

TEST_F(LinuxLifecycle, WhatCannotBeEndedKeepsNobodyFromRemovingTheRest) {
  acquire(key(), spec());
  for (const char* folder : {"trash", "new"}) {
    for (int i = 0; i < 5; ++i) {
      const fs::path stuck = state() / folder / ("stuck" + std::to_string(i));
      fs::create_directory(stuck);
      fs::create_symlink(guest::kLeaseSocketName, stuck / guest::kLeaseSocketName);
      fs::create_directory(state() / folder / ("left" + std::to_string(i)));
    }
  }
  backend().dispose(key());
  for (const char* folder : {"trash", "new"}) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_FALSE(fs::exists(state() / folder / ("left" + std::to_string(i)))) << folder;
      EXPECT_TRUE(fs::remove_all(state() / folder / ("stuck" + std::to_string(i))) > 0) << folder;
    }
  }
}

// LC-12
TEST_F(LinuxLifecycle, AnotherProcessDisposesWhatThisOneMade) {
  auto mine = acquire(key(), spec());
  OtherProcess other([&](int channel) {
    OtherProcess::say(channel, std::to_string(another_backend()->dispose_scope("scope", "thread")));
  });
  EXPECT_EQ(other.hear(), "1");
  expect_refusal<SandboxUnavailable>([&] { mine->exec(shell("true"), {}); }, "acquire it again");
  const auto fresh = acquire(key(), spec());
  EXPECT_FALSE(fresh->info().reused);
  EXPECT_NE(fresh->info().id, mine->info().id);
}

TEST_F(LinuxLifecycle, DisposeEndsABusySandboxAndTheProgramIsNotReportedAsEnded) {
  const auto own = acquire(key(), spec());
  const auto call = own->open_call({}, {});
  const auto process = call->start(shell("sleep 1000"), {});
  EXPECT_EQ(backend().dispose(key()), 1);
  expect_refusal<SandboxUnavailable>([&] { process->wait({}); });
  EXPECT_FALSE(call->close());
  EXPECT_EQ(backend().dispose(key()), 0);
}

TEST_F(LinuxLifecycle, AnotherFingerprintReplacesAnIdleSandbox) {
  const auto first = acquire(key(), spec());
  const auto second = acquire(key(), other_spec());
  EXPECT_FALSE(second->info().reused);
  EXPECT_NE(first->info().id, second->info().id);
  expect_refusal<SandboxUnavailable>([&] { first->exec(shell("true"), {}); });
  EXPECT_EQ(second->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AnotherFingerprintIsRefusedWhileACallIsOpen) {
  const auto first = acquire(key(), spec());
  auto call = first->open_call({}, {});
  expect_refusal<SandboxBusy>([&] { acquire(key(), other_spec()); }, first->info().id);
  EXPECT_EQ(call->exec(shell("echo alive"), {}).stdout, "alive\n");
  call->close();
  call.reset();
  EXPECT_FALSE(acquire(key(), other_spec())->info().reused);
}

TEST_F(LinuxLifecycle, ListAttachAndDisposeById) {
  const auto own = acquire(key(), spec());
  const auto records = another_backend()->list();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].id, own->info().id);
  EXPECT_EQ(records[0].key, key());
  EXPECT_EQ(records[0].kind, "test");
  EXPECT_EQ(records[0].isolation, Isolation::container);
  EXPECT_EQ(records[0].memory_bytes > 0, control_groups_are_had()) << "or it cannot be told";
  const auto attached = another_backend()->attach(key(), "test", {});
  EXPECT_EQ(attached->info().id, own->info().id);
  expect_agent_first(*own);
  expect_agent_first(*attached);
  EXPECT_EQ(attached->first_process(), own->first_process());
  EXPECT_EQ(attached->exec(shell("echo alive"), {}).stdout, "alive\n");
  expect_refusal<NoSuchSandbox>([&] { backend().attach(key(), "none", {}); }, "none");
  EXPECT_FALSE(backend().dispose_id("0000"));
  EXPECT_TRUE(backend().dispose_id(own->info().id));
  EXPECT_TRUE(backend().list().empty());
}

TEST_F(LinuxLifecycle, ASandboxThatCannotBeEndedDoesNotKeepTheOthersOfItsScope) {
  // One lock for each of the two, so one can be made impossible to take.
  std::vector<std::string> lines;
  const auto watched =
      make_backend({.state_dir = state(),
                    .log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); }});
  SandboxSpec other = spec();
  other.kind = "another";
  const auto stuck = acquire(key(), spec());
  const auto good = acquire(key(), other);
  const std::string name = local::sandbox_name(key(), "test");
  const fs::path lock = state() / "locks" / local::lock_name(name);
  fs::rename(lock, state() / "kept");
  fs::create_directory(lock);
  EXPECT_EQ(watched->dispose_scope("scope", "thread"), 1);
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find(stuck->info().id + " (scope 'scope', thread 'thread')"),
            std::string::npos)
      << lines[0];
  fs::remove(lock);
  fs::rename(state() / "kept", lock);
  EXPECT_EQ(watched->dispose_scope("scope", "thread"), 1);
}

TEST_F(LinuxLifecycle, ADisposalCountsNoSandboxWhoseEndIsNotSeen) {
  std::vector<std::string> lines;
  const auto watched =
      make_backend({.state_dir = state(),
                    .log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); }});
  const auto own = watched->acquire(key(), spec(), {});
  const int agent = own->first_process().value();
  const pid_t keeper = keeper_of(agent);
  ASSERT_GT(keeper, 1);
  ASSERT_EQ(kill(keeper, SIGSTOP), 0);
  // Nobody can find the agent any more, and the keeper that has it says nothing.
  fs::remove(sandbox_directories().at(0) / "lease.sock");
  EXPECT_FALSE(watched->dispose_id(own->info().id));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(own->info().id), std::string::npos) << lines[0];
  EXPECT_EQ(kill(agent, 0), 0);
  kill(keeper, SIGCONT);
  EXPECT_TRUE(wait_until_gone(agent));
}

TEST_F(LinuxLifecycle, DisposingByIdLeavesTheSuccessorAndOtherKindsAlone) {
  // LC-02
  const std::string first = acquire(key(), spec())->info().id;
  SandboxSpec other = spec();
  other.kind = "another";
  const auto another = acquire(key(), other);
  EXPECT_TRUE(backend().dispose_id(first));
  const auto successor = acquire(key(), spec());
  EXPECT_FALSE(backend().dispose_id(first));
  EXPECT_FALSE(another_backend()->dispose_id(first));
  EXPECT_EQ(successor->exec(shell("echo alive"), {}).stdout, "alive\n");
  EXPECT_EQ(another->exec(shell("echo alive"), {}).stdout, "alive\n");
}

}  // namespace
}  // namespace casemate::linux_tests
