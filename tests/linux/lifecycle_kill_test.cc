// That a sandbox ends with its users, wherever host, keeper or agent is killed or gives up.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"
#include "tests/linux/lifecycle.h"
#include "tests/linux/other_process.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// LC-04
TEST_F(LinuxLifecycle, AHostThatIsKilledLeavesNothing) {
  OtherProcess other([&](int channel) {
    const auto own = another_backend();
    const auto sandbox = own->acquire(key(), spec(), {});
    const auto call = sandbox->open_call({}, {});
    const auto process = call->start(shell("(setsid sleep 1000 &); sleep 1000"), {});
    OtherProcess::say(channel, sandbox->info().id);
    OtherProcess::hear(channel);
  });
  const std::string id = other.hear();
  ASSERT_EQ(id.size(), 16U) << id;
  const pid_t agent = agent_of(sandbox_directories().at(0));
  const std::set<ProcessIdentity> family = family_of(agent);
  EXPECT_GE(family.size(), 4U) << "agent, call, init, sleep";
  other.end();
  EXPECT_TRUE(wait_until_gone(agent));
  EXPECT_EQ(still_running(family), std::set<ProcessIdentity>{});
  EXPECT_TRUE(wait_until_empty(state() / "sandboxes"));
  EXPECT_EQ(control_groups_of(id), std::vector<std::string>{});
}

// The names of the directories that were made in `new/` since the watch began: the ids.
std::vector<std::string> made_ids(int watch) {
  std::vector<std::string> ids;
  alignas(inotify_event) char buffer[8192];
  for (ssize_t size = 0; (size = read(watch, buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(&buffer[at]);
      if (event->len > 0) ids.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  return ids;
}

// LC-04
TEST_F(LinuxLifecycle, WhereverAHostIsKilledNothingStays) {
  acquire(key(), spec());  // makes the state directory
  backend().dispose(key());
  const sys::UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.get(), (state() / "new").c_str(), IN_CREATE), 0);
  for (int i = 0; i < 30; ++i) {
    OtherProcess other([&](int channel) {
      const auto own = another_backend();
      OtherProcess::say(channel, "begin");
      const auto sandbox = own->acquire(key(std::to_string(i % 3)), spec(), {});
      sandbox->exec(shell("true"), {});
      pause();
    });
    EXPECT_EQ(other.hear(), "begin");
    const auto until = std::chrono::steady_clock::now() + i * 400us;
    while (std::chrono::steady_clock::now() < until) {
    }
    other.end();
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(acquire(key(std::to_string(i)), spec())->exec(shell("echo alive"), {}).stdout,
              "alive\n");
  }
  const std::vector<std::string> ids = made_ids(watch.get());
  EXPECT_GE(ids.size(), 3U);
  for (int i = 0; i < 3; ++i) backend().dispose(key(std::to_string(i)));  // sweeps
  for (const char* name : {"sandboxes", "new", "trash"}) {
    EXPECT_TRUE(wait_until_empty(state() / name)) << name;
  }
  for (const std::string& id : ids) EXPECT_EQ(control_groups_of(id), std::vector<std::string>{});
}

// Waits, at most 20 s, for something to happen to a watched directory, then `more`.
void wait_for_event(int watch, std::chrono::microseconds more) {
  pollfd entry{.fd = watch, .events = POLLIN, .revents = 0};
  ASSERT_EQ(sys::poll_until({&entry, 1}, std::chrono::steady_clock::now() + 20s), 1);
  const auto until = std::chrono::steady_clock::now() + more;
  while (std::chrono::steady_clock::now() < until) {
  }
}

TEST_F(LinuxLifecycle, ACancelledAcquireLeavesNothingWhenItReturns) {
  acquire(key(), spec());
  backend().dispose(key());
  const sys::UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.get(), (state() / "new").c_str(), IN_CREATE), 0);
  int cancelled = 0;
  for (int i = 0; i < 30; ++i) {
    SandboxSpec patient = spec();
    patient.keep_idle = i % 2 == 0 ? 0s : 60s;
    std::stop_source stop;
    CallControl control;
    control.stop = stop.get_token();
    std::jthread canceller([&] {
      wait_for_event(watch.get(), i * 150us);
      stop.request_stop();
    });
    try {
      backend().acquire(key(), patient, control);
    } catch (const SandboxCancelled&) {
      ++cancelled;
      EXPECT_TRUE(fs::is_empty(state() / "new"));
      EXPECT_TRUE(fs::is_empty(state() / "sandboxes"));
    }
    canceller.join();
    const std::vector<std::string> ids = made_ids(watch.get());
    ASSERT_EQ(ids.size(), 1U);
    backend().dispose(key());
    EXPECT_EQ(control_groups_of(ids[0]), std::vector<std::string>{});
  }
  EXPECT_GT(cancelled, 0);
}

// LC-04: here nobody sweeps, and the keeper does not wait for a first lease.
TEST_F(LinuxLifecycle, AKeeperEndsWhatItsKilledHostHadNotPublished) {
  acquire(key(), spec());
  backend().dispose(key());
  const sys::UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.get(), (state() / "new").c_str(), IN_CREATE), 0);
  // Its keeper becomes this process's child, so that its end can be waited for.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  for (int i = 0; i < 20; ++i) {
    OtherProcess other([&](int) {
      const auto own = another_backend();
      const auto sandbox = own->acquire(key(), spec(), {});
      pause();
    });
    wait_for_event(watch.get(), i * 200us);
    other.end();
    const auto killed = std::chrono::steady_clock::now();
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - killed, 9s) << "a first lease was waited for";
    made_ids(watch.get());
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// LC-08
TEST_F(LinuxLifecycle, AKilledAgentIsReplacedOnceByAllThatAskForIt) {
  acquire(key(), spec());
  const pid_t agent = agent_of(sandbox_directories().at(0));
  ASSERT_EQ(kill(agent, SIGKILL), 0);
  ASSERT_TRUE(wait_until_gone(agent));
  std::vector<SandboxInfo> seen(8);
  {
    std::vector<std::jthread> threads;
    for (SandboxInfo& info : seen) {
      threads.emplace_back([&] { info = backend().acquire(key(), spec(), {})->info(); });
    }
  }
  int made = 0;
  for (const SandboxInfo& info : seen) {
    EXPECT_EQ(info.id, seen[0].id);
    if (!info.reused) ++made;
  }
  EXPECT_EQ(made, 1);
}

// LC-08
TEST_F(LinuxLifecycle, AKilledAgentIsReplacedAtTheNextAcquire) {
  const auto first = acquire(key(), spec());
  const pid_t agent = agent_of(sandbox_directories().at(0));
  ASSERT_EQ(kill(agent, SIGKILL), 0);
  ASSERT_TRUE(wait_until_gone(agent));
  expect_refusal<SandboxUnavailable>([&] { first->exec(shell("true"), {}); });
  const auto second = acquire(key(), spec());
  EXPECT_FALSE(second->info().reused);
  EXPECT_EQ(second->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AKilledKeeperTakesItsSandboxesWithItAndTheNextAcquireStartsAnother) {
  const auto first = acquire(key(), spec());
  const pid_t agent = agent_of(sandbox_directories().at(0));
  const pid_t keeper = keeper_of(agent);
  ASSERT_GT(keeper, 1);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  EXPECT_TRUE(wait_until_gone(keeper));
  EXPECT_TRUE(wait_until_gone(agent));
  const auto second = acquire(key(), spec());
  EXPECT_FALSE(second->info().reused);
  EXPECT_EQ(second->exec(shell("echo alive"), {}).stdout, "alive\n");
}

// An agent that is killed closes its sockets one by one; here its keeper ends it when both names
// are gone, as soon as it may go on.
TEST_F(LinuxLifecycle, WhatAHandleFoundEndedIsNotHandedOutAgainThoughItsLeaseStillHolds) {
  SandboxSpec patient = spec();
  patient.keep_idle = 1h;
  const pid_t keeper = keeper_of(*acquire(key(), patient)->first_process());
  ASSERT_GT(keeper, 1);
  const auto other = another_backend();
  const auto found = other->acquire(key(), patient, {});
  ASSERT_TRUE(found->info().reused);
  ASSERT_EQ(kill(keeper, SIGSTOP), 0);
  const fs::path directory = sandbox_directories().at(0);
  for (const char* socket : {guest::kAgentSocketName, guest::kLeaseSocketName}) {
    fs::remove(directory / socket);
  }
  expect_refusal<SandboxUnavailable>([&] { found->exec(shell("true"), {}); }, "has ended");
  const auto again = other->acquire(key(), patient, {});
  EXPECT_NE(again->info().id, found->info().id);
  EXPECT_EQ(again->exec(shell("echo alive"), {}).stdout, "alive\n");
  ASSERT_EQ(kill(keeper, SIGCONT), 0);
}

TEST_F(LinuxLifecycle, WhatADeadCreatorLeftIsSweptAndWhatIsNotOursStays) {
  acquire(key(), spec());
  backend().dispose(key());
  fs::create_directory(state() / "new" / "00112233445566aa");
  std::ofstream(state() / "new" / "00112233445566aa" / "busy.lock") << "";
  fs::create_directory(state() / "trash" / "00112233445566bb");
  fs::create_directory(state() / "foreign");
  EXPECT_TRUE(another_backend()->list().empty());
  EXPECT_TRUE(fs::is_empty(state() / "new"));
  EXPECT_TRUE(fs::is_empty(state() / "trash"));
  EXPECT_TRUE(fs::exists(state() / "foreign"));
}

TEST_F(LinuxLifecycle, ADeadlineThatHasComeIsATimeoutAndLeavesNothing) {
  CallControl late;
  late.deadline = std::chrono::steady_clock::now() - 1s;
  expect_refusal<SandboxTimeout>([&] { backend().acquire(key(), spec(), late); });
  std::stop_source stop;
  stop.request_stop();
  CallControl stopped;
  stopped.stop = stop.get_token();
  expect_refusal<SandboxCancelled>([&] { backend().acquire(key(), spec(), stopped); });
  EXPECT_EQ(acquire(key(), spec())->exec(shell("echo alive"), {}).stdout, "alive\n");
}

}  // namespace
}  // namespace casemate::linux_tests
