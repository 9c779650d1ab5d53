// Who owns a sandbox, who finds it, and that it ends with its users: across threads and processes.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "casemate/backends/linux/state_directory.h"
#include "casemate/core/spec.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/linux/linux_test.h"
#include "tests/linux/other_process.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class LinuxLifecycle : public LinuxTest {
 protected:
  SandboxSpec other_spec() {
    SandboxSpec other = spec();
    other.resources.pids = stated(50);
    return other;
  }
};

TEST_F(LinuxLifecycle, TheSecondAcquireOfAKeyFindsTheFirstsSandbox) {
  const auto first = acquire(key(), spec());
  const auto second = acquire(key(), spec());
  EXPECT_FALSE(first->info().reused);
  EXPECT_TRUE(second->info().reused);
  EXPECT_EQ(first->info().id, second->info().id);
  EXPECT_EQ(first->info().backend, "linux");
  EXPECT_EQ(first->info().isolation, Isolation::container);
  EXPECT_EQ(first->info().image, "host");
  EXPECT_EQ(first->info().work_dir, "/workspace");
}

// LC-10
TEST_F(LinuxLifecycle, DifferentKeysAndKindsNeverShare) {
  std::set<std::string> ids;
  std::vector<std::shared_ptr<Sandbox>> held;
  SandboxSpec kind = spec();
  kind.kind = "other";
  const std::vector<SandboxKey> keys = {
      {"a-b", "c", "x"}, {"a", "b-c", "x"}, {"A", "b-c", "x"}, {"a", "b", "c\n=,"}};
  for (const SandboxKey& one : keys) held.push_back(acquire(one, spec()));
  held.push_back(acquire(keys[0], kind));
  for (const auto& sandbox : held) ids.insert(sandbox->info().id);
  EXPECT_EQ(ids.size(), 5U);
  EXPECT_EQ(backend().dispose(keys[0]), 2) << "of every kind";
  EXPECT_EQ(backend().dispose_scope("a", "b-c"), 1);
  EXPECT_EQ(backend().dispose_scope("A", "b-c"), 1);
  EXPECT_EQ(backend().dispose_scope("a", "b"), 1);
}

TEST_F(LinuxLifecycle, ADisposalCountsWhatOnlyTheTableStillHeld) {
  for (int round = 0; round < 30; ++round) {
    acquire(key(), spec());
    ASSERT_EQ(backend().dispose_scope("scope", "thread"), 1) << round;
  }
}

TEST_F(LinuxLifecycle, RunningOutOfDescriptorsSaysThatDisposingGivesThemBack) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's check of a type needs a descriptor of its own";
#endif
  OtherProcess other([&](int channel) {
    const auto own = another_backend();
    const rlimit limit{.rlim_cur = 40, .rlim_max = 40};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    std::string hint = "none";
    int made = 0;
    try {
      for (; made < 40; ++made) own->acquire(key(std::to_string(made)), spec(), {});
    } catch (const SandboxUnavailable& refusal) {
      hint = refusal.message() + " " + refusal.hint();
    }
    for (int i = 0; i < made; ++i) own->dispose(key(std::to_string(i)));
    own->acquire(key("0"), spec(), {});
    OtherProcess::say(channel, hint);
  });
  const std::string heard = other.hear();
  EXPECT_NE(heard.find("dispose conversations"), std::string::npos) << heard;
}

// LC-02
TEST_F(LinuxLifecycle, EightThreadsAndFourProcessesGetOneSandbox) {
  std::vector<std::unique_ptr<OtherProcess>> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(std::make_unique<OtherProcess>([&](int channel) {
      const auto own = another_backend();
      OtherProcess::hear(channel);
      const auto sandbox = own->acquire(key(), spec(), {});
      OtherProcess::say(channel, sandbox->info().id + (sandbox->info().reused ? " reused" : ""));
      OtherProcess::hear(channel);
    }));
  }
  for (const auto& other : others) other->say("go");
  std::vector<std::string> seen(8);
  {
    std::vector<std::shared_ptr<Sandbox>> held(8);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] { held[i] = backend().acquire(key(), spec(), {}); });
      }
    }
    for (std::size_t i = 0; i < 8; ++i) {
      seen[i] = held[i]->info().id + (held[i]->info().reused ? " reused" : "");
    }
    for (const auto& other : others) seen.push_back(other->hear());
    for (const auto& other : others) {
      other->say("end");
      EXPECT_TRUE(other->ended_well());
    }
    EXPECT_EQ(held[0]->exec(shell("echo alive"), {}).stdout, "alive\n");
  }
  std::set<std::string> ids;
  int made = 0;
  for (const std::string& text : seen) {
    ids.insert(text.substr(0, 16));
    if (!text.ends_with(" reused")) ++made;
  }
  EXPECT_EQ(ids.size(), 1U) << testing::PrintToString(seen);
  EXPECT_EQ(made, 1);
}

TEST_F(LinuxLifecycle, TheLastProcessEndsTheSandbox) {
  auto first = another_backend();
  auto second = another_backend();
  first->acquire(key(), spec(), {});
  const auto handle = second->acquire(key(), spec(), {})->info();
  EXPECT_TRUE(handle.reused);
  const pid_t agent = agent_of(sandbox_directories().at(0));
  first.reset();
  EXPECT_EQ(second->acquire(key(), spec(), {})->exec(shell("echo alive"), {}).stdout, "alive\n");
  second.reset();
  EXPECT_TRUE(wait_until_gone(agent));
  EXPECT_TRUE(wait_until_empty(state() / "sandboxes"));
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

TEST_F(LinuxLifecycle, AHandleOutlivesTheBackend) {
  auto short_lived = another_backend();
  const auto handle = short_lived->acquire(key(), spec(), {});
  short_lived.reset();
  EXPECT_EQ(handle->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AnAcquireOfWhatIsHeldTakesNoLock) {
  const std::string id = acquire(key(), spec())->info().id;
  std::vector<sys::UniqueFd> locks;
  for (const auto& entry : fs::directory_iterator(state() / "locks")) {
    locks.emplace_back(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(locks.back().get(), LOCK_EX | LOCK_NB), 0);
  }
  ASSERT_FALSE(locks.empty());
  CallControl patient;
  patient.deadline = std::chrono::steady_clock::now() + 20s;
  EXPECT_EQ(backend().acquire(key(), spec(), patient)->info().id, id);
  EXPECT_EQ(backend().attach(key(), "test", patient)->info().id, id);
  CallControl late;
  late.deadline = std::chrono::steady_clock::now() - 1s;
  expect_refusal<SandboxTimeout>([&] { backend().acquire(key(), spec(), late); });
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

TEST_F(LinuxLifecycle, AnIdleSandboxWaitsForItsNextProcess) {
  SandboxSpec patient = spec();
  patient.keep_idle = 60s;
  auto first = another_backend();
  const std::string id = first->acquire(key(), patient, {})->info().id;
  const auto kept = first->acquire(key(), patient, {})->exec(shell("echo kept > ~/kept"), {});
  EXPECT_EQ(kept.exit_code, 0);
  first.reset();
  const auto second = acquire(key(), patient);
  EXPECT_TRUE(second->info().reused);
  EXPECT_EQ(second->info().id, id);
  EXPECT_EQ(second->exec(shell("cat ~/kept"), {}).stdout, "kept\n");
}

TEST_F(LinuxLifecycle, TheLastUsersWishDecidesHowLongItWaits) {
  SandboxSpec patient = spec();
  patient.keep_idle = 60s;
  auto keeping = another_backend();
  const std::string id = keeping->acquire(key(), patient, {})->info().id;
  const pid_t agent = agent_of(sandbox_directories().at(0));
  keeping.reset();
  auto visitor = another_backend();
  EXPECT_EQ(visitor->attach(key(), "test", {})->info().id, id);
  visitor.reset();  // An attach wishes nothing.
  auto refused = another_backend();
  auto caller = another_backend();
  {
    const auto call = caller->attach(key(), "test", {})->open_call({}, {});
    expect_refusal<SandboxBusy>([&] { refused->acquire(key(), other_spec(), {}); });
  }
  caller.reset();
  refused.reset();  // Nor does one that was refused.
  auto changing = another_backend();
  EXPECT_EQ(changing->acquire(key(), spec(), {})->info().id, id);
  EXPECT_EQ(changing->acquire(key(), patient, {})->info().id, id);
  changing.reset();
  auto last = another_backend();
  EXPECT_EQ(last->acquire(key(), patient, {})->info().id, id);
  EXPECT_EQ(last->acquire(key(), spec(), {})->info().id, id);
  last.reset();
  EXPECT_TRUE(wait_until_gone(agent));
  EXPECT_TRUE(wait_until_empty(state() / "sandboxes"));
}

// LC-16
TEST_F(LinuxLifecycle, AnIdleSandboxEndsWhenItsTimeIsUpAndNeverWhileItIsHeld) {
  SandboxSpec patient = spec();
  patient.keep_idle = 100ms;
  auto host = another_backend();
  EXPECT_EQ(host->acquire(key(), patient, {})->exec(shell("sleep 0.5; echo alive"), {}).stdout,
            "alive\n");
  const pid_t agent = agent_of(sandbox_directories().at(0));
  host.reset();
  EXPECT_TRUE(wait_until_gone(agent));
  EXPECT_TRUE(wait_until_empty(state() / "sandboxes"));
}

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
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    OtherProcess other([&](int) {
      const auto own = another_backend();
      const auto sandbox = own->acquire(key(), spec(), {});
      pause();
    });
    wait_for_event(watch.get(), i * 200us);
    other.end();
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    made_ids(watch.get());
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 9s) << "one first lease was waited for";
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
  std::ifstream status("/proc/" + std::to_string(agent) + "/status");
  pid_t keeper = -1;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) keeper = std::stoi(line.substr(5));
  }
  ASSERT_GT(keeper, 1);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  EXPECT_TRUE(wait_until_gone(keeper));
  EXPECT_TRUE(wait_until_gone(agent));
  const auto second = acquire(key(), spec());
  EXPECT_FALSE(second->info().reused);
  EXPECT_EQ(second->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AForkOfTheHostDisposesNothing) {
  auto own = acquire(key(), spec());
  const auto call = own->open_call({}, {});
  const pid_t child = fork();
  if (child == 0) {
    own.reset();
    exit(0);  // runs what destructors a forked child runs
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(call->exec(shell("echo alive"), {}).stdout, "alive\n");
  EXPECT_EQ(own->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AForkOfTheHostCanAcquireItself) {
  const auto own = acquire(key(), spec());
  OtherProcess other([&](int channel) {
    const auto theirs = backend().acquire(key("other"), spec(), {});
    OtherProcess::say(channel, theirs->exec(shell("echo from the child"), {}).stdout);
  });
  EXPECT_EQ(other.hear(), "from the child\n");
  EXPECT_TRUE(other.ended_well());
  EXPECT_EQ(acquire(key("third"), spec())->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, TheHostIsNeverTheParentOfAnything) {
  const auto own = acquire(key(), spec());
  EXPECT_EQ(own->exec(shell("true"), {}).exit_code, 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
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
  EXPECT_EQ(attached->exec(shell("echo alive"), {}).stdout, "alive\n");
  expect_refusal<NoSuchSandbox>([&] { backend().attach(key(), "none", {}); }, "none");
  EXPECT_FALSE(backend().dispose_id("0000"));
  EXPECT_TRUE(backend().dispose_id(own->info().id));
  EXPECT_TRUE(backend().list().empty());
}

TEST_F(LinuxLifecycle, AKeyOfAnyBytesIsFoundAgainAndNoOtherForIt) {
  // NM-06
  const SandboxKey bytes{"a\xff", "t\xfe", "\x80"};
  const SandboxKey replaced{"a\uFFFD", "t\uFFFD", "\uFFFD"};
  const auto own = acquire(bytes, spec());
  EXPECT_EQ(another_backend()->dispose(replaced), 0);
  EXPECT_EQ(another_backend()->dispose_scope("a\uFFFD", "t\uFFFD"), 0);
  ASSERT_EQ(another_backend()->list().size(), 1U);
  EXPECT_EQ(another_backend()->list()[0].key, bytes);
  EXPECT_EQ(another_backend()->dispose_scope("a\xff", "t\xfe"), 1);
  acquire(bytes, spec());
  EXPECT_EQ(another_backend()->dispose(bytes), 1);
}

TEST_F(LinuxLifecycle, ASandboxThatCannotBeEndedDoesNotKeepTheOthersOfItsScope) {
  // One lock for each of the two, so one can be made impossible to take.
  std::vector<std::string> lines;
  LinuxBackend watched({.state_dir = state(),
                        .log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); }});
  SandboxSpec other = spec();
  other.kind = "another";
  const auto stuck = acquire(key(), spec());
  const auto good = acquire(key(), other);
  const std::string digest = identity_digest(key(), "test");
  const fs::path lock = state() / "locks" / linux_backend::lock_name(digest);
  fs::rename(lock, state() / "kept");
  fs::create_directory(lock);
  EXPECT_EQ(watched.dispose_scope("scope", "thread"), 1);
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find(stuck->info().id + " (scope 'scope', thread 'thread')"),
            std::string::npos)
      << lines[0];
  fs::remove(lock);
  fs::rename(state() / "kept", lock);
  EXPECT_EQ(watched.dispose_scope("scope", "thread"), 1);
}

TEST_F(LinuxLifecycle, ACancelledCallLeavesTheSandboxWarm) {
  std::stop_source stop;
  const auto own = acquire(key(), spec());
  ExecRequest request = shell("echo up; sleep 1000");
  request.on_output = [&](OutputStream, std::span<const char>) { stop.request_stop(); };
  const ExecResult result = own->exec(request, {std::nullopt, stop.get_token()});
  EXPECT_EQ(result.outcome, Outcome::cancelled);
  EXPECT_TRUE(result.stopped_known);
  const auto again = acquire(key(), spec());
  EXPECT_EQ(again->info().id, own->info().id);
  EXPECT_EQ(again->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AnOutputCallbackMayCallBackIntoAllOfIt) {
  const auto call = acquire(key(), spec())->open_call({}, {});
  std::unique_ptr<Process> process;
  std::string seen;
  ExecRequest request = shell("echo up; sleep 1000");
  request.timeout = 60s;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    call->write_file("seen", bytes, call->directory() + "/work", {});
    seen = call->exec(shell("cat seen"), {}).stdout;
    EXPECT_EQ(backend().list().size(), 1U);
    EXPECT_TRUE(backend().acquire(key(), spec(), {})->info().reused);
    process->signal(SIGTERM);
  };
  process = call->start(request, {});
  EXPECT_EQ(process->wait({}).signal, "SIGTERM");
  EXPECT_EQ(seen, "up\n");
}

// What a library could change of the process that it runs in.
std::string state_of_this_process() {
  std::ostringstream state;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) < 0) continue;
    state << number << ':' << reinterpret_cast<std::uintptr_t>(action.sa_handler) << ','
          << action.sa_flags << ' ';
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number <= SIGRTMAX; ++number) state << sigismember(&mask, number);
  const mode_t creation = umask(0);
  umask(creation);
  state << " umask " << creation << " in " << fs::current_path() << '\n';
  for (char** entry = environ; *entry != nullptr; ++entry) state << *entry << '\n';
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
    state << limit.rlim_cur << '/' << limit.rlim_max << ' ';
  }
  state << prctl(PR_GET_DUMPABLE) << prctl(PR_GET_NO_NEW_PRIVS) << prctl(PR_GET_CHILD_SUBREAPER);
  return state.str();
}

TEST_F(LinuxLifecycle, NothingOfTheHostProcessIsChanged) {
  const std::string before = state_of_this_process();
  {
    const auto own = acquire(key(), spec());
    EXPECT_EQ(own->exec(shell("echo alive"), {}).stdout, "alive\n");
    EXPECT_EQ(state_of_this_process(), before);
    backend().dispose(key());
  }
  EXPECT_EQ(state_of_this_process(), before);
}

TEST_F(LinuxLifecycle, LabelsAreKeptWithTheSandbox) {
  SandboxSpec labelled = spec();
  labelled.labels = {{"team", "red"}, {"id", "not ours"}};
  const auto own = acquire(key(), labelled);
  std::ifstream file(sandbox_directories().at(0) / "record.json");
  const auto record = linux_backend::decode_record(
      std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->labels, labelled.labels);
  EXPECT_EQ(another_backend()->list().at(0).labels, labelled.labels);
  EXPECT_EQ(record->id, own->info().id);
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

TEST_F(LinuxLifecycle, AStateDirectoryOfOthersIsRefused) {
  const fs::path open_to_all = state() / "open";
  fs::create_directory(open_to_all);
  fs::permissions(open_to_all, fs::perms::owner_all | fs::perms::others_read);
  LinuxBackend other({.state_dir = open_to_all, .log = {}});
  expect_refusal<SandboxUnavailable>([&] { other.acquire(key(), spec(), {}); }, {"open", "700"});
  EXPECT_FALSE(other.probe().available);
  fs::create_directory_symlink(state(), state() / "link");
  LinuxBackend linked({.state_dir = state() / "link", .log = {}});
  expect_refusal<SandboxUnavailable>([&] { linked.acquire(key(), spec(), {}); }, "link");
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

// ISO-17
TEST_F(LinuxLifecycle, ASpecThatItCannotServeIsRefusedWithoutARouterToo) {
  SandboxSpec wanted = spec();
  wanted.egress = Egress::unrestricted;
  expect_refusal<SandboxEgressNotEnforced>([&] { acquire(key(), wanted); }, "unrestricted");
  wanted = spec();
  wanted.min_isolation = Isolation::microvm;
  expect_refusal<SandboxBackendNotPermitted>([&] { acquire(key(), wanted); }, "microvm");
  wanted = spec();
  wanted.requires_capabilities = {Capability::snapshot};
  expect_refusal<SandboxCapabilityNotSupported>([&] { acquire(key(), wanted); }, "snapshot");
  wanted = spec();
  wanted.image_id = "one";
  expect_refusal<SandboxImageNotSupported>([&] { acquire(key(), wanted); }, "\"one\"");
  wanted = spec();
  wanted.image = "dir:/no/such";
  expect_refusal<SandboxImageInvalid>([&] { acquire(key(), wanted); }, "dir:/no/such");
  for (const char* path : {"", "work", "/", "/usr/x", "/tmp", "/home/user/w", "/a/../b", "/a//b"}) {
    wanted = spec();
    wanted.work_dir = path;
    expect_refusal<InvalidArgument>([&] { acquire(key(), wanted); }, "work_dir");
  }
  expect_refusal<InvalidArgument>([&] { acquire({"", "t", "a"}, spec()); }, "scope");
  EXPECT_TRUE(backend().list().empty());
}

TEST_F(LinuxLifecycle, ItsWorkDirectoryIsWhereTheSpecSaysSo) {
  SandboxSpec wanted = spec();
  wanted.work_dir = "/srv/data/work";
  const auto own = acquire(key(), wanted);
  const auto call = own->open_call({}, {});
  EXPECT_EQ(call->directory(), "/srv/data/work/" + call->id());
  EXPECT_EQ(call->exec(shell("pwd; echo x > y; ls /srv/data"), {}).stdout,
            call->directory() + "/work\nwork\n");
}

}  // namespace
}  // namespace casemate::linux_tests
