// What of the oci backend is its own: the runtime, the container that it makes, and what stays of
// them when something is killed. What it shares with the linux backend is tested by that one's
// suite, run over each runtime (oci_suites_test.py).

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "casemate/backends/oci/oci_backend.h"
#include "casemate/backends/oci/runtime.h"
#include "casemate/core/errors.h"
#include "casemate/local/subordinate_ids.h"
#include "tests/linux/linux_test.h"
#include "tests/linux/other_process.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::oci_tests {
namespace {

using namespace std::chrono_literals;
using linux_tests::OtherProcess;
using linux_tests::python;
using linux_tests::shell;
namespace fs = std::filesystem;

constexpr char kSearch[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The value of a line of /proc/PID/status.
std::string status_of(pid_t pid, const std::string& name) {
  std::istringstream lines(text_of("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return "";
}

// Control groups that a runtime was told to make, in any hierarchy.
std::vector<std::string> runtime_groups() {
  std::vector<std::string> found;
  const auto look_in = [&](const fs::path& hierarchy) {
    // Others' groups end while they are gone through.
    std::error_code gone;
    for (fs::directory_iterator group(hierarchy, gone), end; !gone && group != end;
         group.increment(gone)) {
      const std::string name = group->path().filename();
      if (name.starts_with("casemate-runtime-")) found.push_back(group->path());
    }
  };
  // Version 2 alone is the directory itself; hierarchies of version 1 are in it.
  look_in("/sys/fs/cgroup");
  for (const auto& hierarchy : fs::directory_iterator("/sys/fs/cgroup")) {
    std::error_code gone;
    if (hierarchy.is_directory(gone)) look_in(hierarchy);
  }
  return found;
}

class Oci : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!oci::find_program(GetParam(), kSearch)) {
      GTEST_SKIP() << "the OCI runtime " << GetParam() << " is not installed";
    }
    if (encloses() && geteuid() != 0) GTEST_SKIP() << "runsc needs root";
    backend_ = another_backend();
    const BackendProbe probe = backend_->probe();
    ASSERT_TRUE(probe.available) << probe.reason;
  }
  void TearDown() override {
    if (!backend_) return;
    for (const SandboxRecord& record : backend_->list()) backend_->dispose_id(record.id);
    expect_nothing_left();
  }

  std::unique_ptr<OciBackend> another_backend(std::string runtime = GetParam()) const {
    return std::make_unique<OciBackend>(
        OciBackendOptions{.runtime = std::move(runtime), .state_dir = state_.path()});
  }
  OciBackend& backend() { return *backend_; }
  fs::path state() const { return state_.path(); }

  // Which ids were used so far is not known here, so nothing at all may be there.
  void expect_nothing_left() {
    for (const char* name : {"sandboxes", "new", "trash", "runtime"}) {
      if (!fs::exists(state() / name)) continue;
      EXPECT_TRUE(linux_tests::wait_until_empty(state() / name)) << name;
    }
  }

  static SandboxKey key(std::string thread = "thread") {
    return {"scope", std::move(thread), "agent"};
  }
  static SandboxSpec spec() {
    SandboxSpec spec;
    spec.kind = "test";
    return spec;
  }
  // Whether the runtime brings a kernel of its own: who listens for a sandbox is then a process of
  // this machine's beside it, and nothing of the runtime's own stays where it can be seen.
  static bool encloses() { return GetParam() == "runsc"; }
  pid_t agent() const {
    for (const auto& entry : fs::directory_iterator(state() / "sandboxes")) {
      return linux_tests::agent_of(entry.path());
    }
    return -1;
  }

 private:
  Scratch state_;
  std::unique_ptr<OciBackend> backend_;
};

TEST_P(Oci, APythonProgramRunsInAContainerOfTheRuntimes) {
  const auto sandbox = backend().acquire(key(), spec(), {});
  EXPECT_EQ(sandbox->exec(python("print(1)"), {}).stdout, "1\n");
  EXPECT_EQ(sandbox->info().backend, "oci");
  EXPECT_EQ(sandbox->info().isolation,
            encloses() ? Isolation::hardened_container : Isolation::container);
  // The runtime's own record of it, under the sandbox's id.
  EXPECT_EQ(another_backend()->list().size(), 1U) << "whose sweep touches nothing that lives";
  EXPECT_EQ(fs::exists(state() / "runtime" / sandbox->info().id), !encloses());
  EXPECT_EQ(backend().dispose(key()), 1);
  EXPECT_FALSE(fs::exists(state() / "runtime" / sandbox->info().id));
  for (const std::string& group : runtime_groups()) {
    EXPECT_EQ(group.find(sandbox->info().id), std::string::npos) << group;
  }
}

TEST_P(Oci, TheContainerIsWhatItsConfigSays) {
  if (encloses()) GTEST_SKIP() << "its first process is none of this machine's";
  const auto sandbox = backend().acquire(key(), spec(), {});
  const pid_t first = agent();
  ASSERT_GT(first, 0);
  EXPECT_EQ(status_of(first, "NoNewPrivs"), "1");
  EXPECT_EQ(status_of(first, "Name"), "casemate-agent");
  EXPECT_EQ(status_of(first, "CapBnd"), "0000000000000000") << "given up by the agent";
  EXPECT_EQ(status_of(first, "CapAmb"), "0000000000000000");
  EXPECT_EQ(status_of(first, "CapInh"), "0000000000000000");
  EXPECT_EQ(status_of(first, "Groups").find_first_not_of(" "), std::string::npos);
  // NSpid: here, and 1 in the container.
  EXPECT_TRUE(status_of(first, "NSpid").ends_with("\t1")) << status_of(first, "NSpid");
  const fs::path of_agent = "/proc/" + std::to_string(first) + "/ns";
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
    EXPECT_NE(fs::read_symlink(of_agent / kind), fs::read_symlink(fs::path("/proc/self/ns") / kind))
        << kind;
  }
  std::istringstream mounts(text_of("/proc/" + std::to_string(first) + "/mountinfo"));
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id;
    std::string parent;
    std::string device;
    std::string root;
    std::string point;
    std::string options;
    fields >> id >> parent >> device >> root >> point >> options;
    if (point == "/") {
      EXPECT_TRUE(options.starts_with("ro,")) << line;
    }
    EXPECT_NE(options.find("nosuid"), std::string::npos) << line;
  }
}

TEST_P(Oci, NoStreamOfTheRuntimesLeadsOutOfTheContainer) {
  if (encloses()) GTEST_SKIP() << "two of its streams are how it is reached";
  const auto sandbox = backend().acquire(key(), spec(), {});
  for (const char* number : {"0", "1", "2"}) {
    const fs::path stream = "/proc/" + std::to_string(agent()) + "/fd/" + number;
    EXPECT_EQ(fs::read_symlink(stream), "/dev/null") << number;
  }
}

TEST_P(Oci, ASandboxMadeByAnotherRuntimeIsReplaced) {
  const std::string other = GetParam() == "crun" ? "runc" : "crun";
  if (!oci::find_program(other, kSearch)) {
    GTEST_SKIP() << "the OCI runtime " << other << " is not installed";
  }
  SandboxSpec kept = spec();
  kept.keep_idle = 10min;
  const std::string first = backend().acquire(key(), kept, {})->info().id;
  const auto with_other = another_backend(other);
  EXPECT_EQ(with_other->list().size(), 1U) << "found all the same";
  const SandboxInfo second = with_other->acquire(key(), kept, {})->info();
  EXPECT_FALSE(second.reused);
  EXPECT_NE(second.id, first);
  EXPECT_FALSE(fs::exists(state() / "runtime" / first)) << "ended without its own runtime";
  EXPECT_EQ(backend().dispose_scope("scope", "thread"), 1) << "and the other way round";
}

// LC-02
TEST_P(Oci, FourProcessesThatAskAtOnceGetOneContainer) {
  std::vector<std::unique_ptr<OtherProcess>> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(std::make_unique<OtherProcess>([&](int channel) {
      const auto own = another_backend();
      OtherProcess::hear(channel);
      const auto sandbox = own->acquire(key(), spec(), {});
      OtherProcess::say(channel, sandbox->info().id);
      OtherProcess::hear(channel);
    }));
  }
  for (const auto& other : others) other->say("go");
  std::set<std::string> ids;
  for (const auto& other : others) ids.insert(other->hear());
  EXPECT_EQ(ids.size(), 1U);
  const auto entries = fs::directory_iterator(state() / (encloses() ? "sandboxes" : "runtime"));
  EXPECT_EQ(std::distance(fs::begin(entries), fs::end(entries)), 1) << "no second was begun";
  for (const auto& other : others) other->say("end");
}

// LC-04
TEST_P(Oci, WhereverAHostIsKilledNothingStays) {
  backend().list();  // makes the state directory
  for (int i = 0; i < 24; ++i) {
    OtherProcess other([&](int channel) {
      const auto own = another_backend();
      OtherProcess::say(channel, "begin");
      const auto sandbox = own->acquire(key(), spec(), {});
      sandbox->exec(shell("true"), {});
      pause();
    });
    EXPECT_EQ(other.hear(), "begin");
    // Steps of its work, not waiting for it: a start takes some ten milliseconds, or a quarter of a
    // second.
    const auto until = std::chrono::steady_clock::now() + i * (encloses() ? 12000us : 1500us);
    while (std::chrono::steady_clock::now() < until) {
    }
    other.end();
  }
  EXPECT_EQ(backend().acquire(key(), spec(), {})->exec(shell("echo alive"), {}).stdout, "alive\n");
  backend().dispose_scope("scope", "thread");
  expect_nothing_left();
}

TEST_P(Oci, AKilledKeeperTakesItsContainersWithIt) {
  const auto first = backend().acquire(key(), spec(), {});
  const pid_t container = agent();
  const pid_t keeper = linux_tests::keeper_of(container);
  ASSERT_GT(keeper, 1);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  EXPECT_TRUE(linux_tests::wait_until_gone(container));
  const auto second = backend().acquire(key(), spec(), {});
  EXPECT_FALSE(second->info().reused);
  EXPECT_EQ(second->exec(shell("echo alive"), {}).stdout, "alive\n");
  EXPECT_FALSE(fs::exists(state() / "runtime" / first->info().id));
}

// A runtime of the test's own: answers as crun does when it is asked for its version.
class OciScript : public testing::Test {
 protected:
  void SetUp() override {
    if (local::remedy_for_one_id()) GTEST_SKIP() << "this user can give a container one id only";
  }
  void write(const std::string& body, const std::string& version = "crun version 9.9") {
    std::ofstream(runtime()) << "#!/bin/sh\n[ \"$1\" = --version ] && echo " << version
                             << " && exit 0\n"
                             << body << "\n";
    fs::permissions(runtime(), fs::perms::owner_all);
  }
  std::string runtime() const { return (scratch_ / "runtime").native(); }
  fs::path state() const { return scratch_ / "state"; }
  std::unique_ptr<OciBackend> backend() const {
    return std::make_unique<OciBackend>(
        OciBackendOptions{.runtime = runtime(), .state_dir = state()});
  }
  void expect_nothing_left() const {
    for (const char* name : {"sandboxes", "new", "trash", "runtime"}) {
      EXPECT_TRUE(fs::is_empty(state() / name)) << name;
    }
  }
  SandboxSpec spec_ = [] {
    SandboxSpec spec;
    spec.kind = "test";
    return spec;
  }();
  SandboxKey key_{"scope", "thread", "agent"};
  Scratch scratch_;
};

TEST_F(OciScript, WhatAFailingRuntimeSaidLastIsTheRefusal) {
  write("echo first >&2; echo 'out of luck' >&2; exit 1");
  const auto own = backend();
  expect_refusal<SandboxUnavailable>([&] { own->acquire(key_, spec_, {}); }, "out of luck");
  expect_nothing_left();
}

TEST_F(OciScript, ARuntimeThatFailsInSilenceOrSaysItWorkedIsARefusalToo) {
  write("exit 7");
  expect_refusal<SandboxUnavailable>([&] { backend()->acquire(key_, spec_, {}); },
                                     "did not say why");
  write("exit 0");
  expect_refusal<SandboxUnavailable>([&] { backend()->acquire(key_, spec_, {}); },
                                     "ended before it was ready");
  expect_nothing_left();
}

TEST_F(OciScript, AnAcquireThatIsCancelledEndsARuntimeThatHangs) {
  const fs::path begun = scratch_ / "begun";
  ASSERT_EQ(mkfifo(begun.c_str(), 0600), 0);
  write("echo $$ > " + begun.native() + "; exec sleep 1000");
  const auto own = backend();
  std::stop_source stop;
  CallControl control;
  control.stop = stop.get_token();
  pid_t hanging = -1;
  std::jthread canceller([&] {
    std::ifstream(begun) >> hanging;
    stop.request_stop();
  });
  expect_refusal<SandboxCancelled>([&] { own->acquire(key_, spec_, control); });
  canceller.join();
  ASSERT_GT(hanging, 0);
  EXPECT_TRUE(linux_tests::wait_until_gone(hanging));
  expect_nothing_left();
}

TEST_F(OciScript, OneThatHangsIsEndedSoThatOthersNeedNotWait) {
  const fs::path begun = scratch_ / "begun";
  write("echo $$ > " + begun.native() + "; exec sleep 1000");
  OciBackend own({.runtime = runtime(), .state_dir = state(), .start_patience = 2s});
  expect_refusal<SandboxUnavailable>([&] { own.acquire(key_, spec_, {}); }, "took too long");
  pid_t hanging = -1;
  std::ifstream(begun) >> hanging;
  ASSERT_GT(hanging, 0);
  EXPECT_TRUE(linux_tests::wait_until_gone(hanging));
  expect_nothing_left();
  write("exit 7");
  expect_refusal<SandboxUnavailable>([&] { own.acquire(key_, spec_, {}); }, "did not say why");
}

TEST_F(OciScript, AskingForTheVersionIsWithinTheCallersBounds) {
  std::ofstream(runtime()) << "#!/bin/sh\nexec sleep 1000\n";
  fs::permissions(runtime(), fs::perms::owner_all);
  const auto own = backend();
  CallControl hurried;
  hurried.deadline = std::chrono::steady_clock::now() + 50ms;
  expect_refusal<SandboxTimeout>([&] { own->acquire(key_, spec_, hurried); }, "version");
  std::stop_source stop;
  CallControl stoppable;
  stoppable.stop = stop.get_token();
  std::jthread canceller([&] { stop.request_stop(); });
  expect_refusal<SandboxCancelled>([&] { own->acquire(key_, spec_, stoppable); });
}

TEST_F(OciScript, AnotherRuntimeUnderTheSameNameIsStartedAsWhatItIs) {
  const fs::path told = scratch_ / "told";
  const auto own = backend();
  const auto words = [&] {
    expect_refusal<SandboxUnavailable>([&] { own->acquire(key_, spec_, {}); }, "did not say why");
    return text_of(told);
  };
  const std::string body = "echo \"$*\" > " + told.native() + "; exit 7";
  write(body);
  EXPECT_NE(words().find("--cgroup-manager=disabled"), std::string::npos);
  write(body, "runc version 99.9.9");
  EXPECT_EQ(words().find("--cgroup-manager"), std::string::npos) << text_of(told);
}

TEST_F(OciScript, ARecordThatAKilledKeeperLeftIsSwept) {
  write("exit 7");
  const auto own = backend();
  own->list();
  EXPECT_FALSE(fs::exists(state())) << "to look is no reason to make it";
  expect_refusal<SandboxUnavailable>([&] { own->acquire(key_, spec_, {}); }, "did not say why");
  const fs::path left = state() / "runtime" / "0123456789abcdef";
  fs::create_directory(left);
  std::ofstream(left / "status") << "{}";
  EXPECT_TRUE(own->list().empty());
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(OciScript, WhatARuntimeStartedEndsWithIt) {
  const fs::path begun = scratch_ / "begun";
  ASSERT_EQ(mkfifo(begun.c_str(), 0600), 0);
  // With the container's end of its connection, as its first process has it.
  write("(sleep 1000 & echo $! > " + begun.native() + "); sleep 1000");
  const auto own = backend();
  std::stop_source stop;
  CallControl control;
  control.stop = stop.get_token();
  pid_t orphan = -1;
  std::jthread canceller([&] {
    std::ifstream(begun) >> orphan;
    stop.request_stop();
  });
  expect_refusal<SandboxCancelled>([&] { own->acquire(key_, spec_, control); });
  canceller.join();
  ASSERT_GT(orphan, 0);
  EXPECT_TRUE(linux_tests::wait_until_gone(orphan));
  expect_nothing_left();
}

// As a container's first process is before it has said anything.
TEST_F(OciScript, WhatARuntimeLeftEndsWithItsAcquireToo) {
  const fs::path begun = scratch_ / "begun";
  ASSERT_EQ(mkfifo(begun.c_str(), 0600), 0);
  write("sleep 1000 & echo $$ $! > " + begun.native() + "; exit 0");
  const auto own = backend();
  std::stop_source stop;
  CallControl control;
  control.stop = stop.get_token();
  pid_t script = -1;
  pid_t orphan = -1;
  bool waited_for = false;
  std::jthread canceller([&] {
    std::ifstream(begun) >> script >> orphan;
    waited_for = linux_tests::wait_until_gone(script);
    stop.request_stop();
  });
  expect_refusal<SandboxCancelled>([&] { own->acquire(key_, spec_, control); });
  canceller.join();
  EXPECT_TRUE(waited_for);
  ASSERT_GT(orphan, 0);
  EXPECT_TRUE(linux_tests::wait_until_gone(orphan));
  expect_nothing_left();
}

TEST_F(OciScript, ARuntimeThatIsNotThereOrNoneIsARefusalWithWhatToDo) {
  const OciBackendOptions options{.runtime = runtime(), .state_dir = state()};
  OciBackend none(options);
  expect_refusal<SandboxUnavailable>([&] { none.acquire(key_, spec_, {}); },
                                     {runtime(), "runtime"});
  EXPECT_FALSE(none.probe().available);
  EXPECT_EQ(none.probe().engine, "");
  std::ofstream(runtime()) << "#!/bin/sh\necho youki version 1\n";
  fs::permissions(runtime(), fs::perms::owner_all);
  expect_refusal<SandboxUnavailable>([&] { none.acquire(key_, spec_, {}); }, "youki version 1");
  // Asked again when it is another file.
  write("echo works >&2; exit 1");
  expect_refusal<SandboxUnavailable>([&] { none.acquire(key_, spec_, {}); }, "works");
}

INSTANTIATE_TEST_SUITE_P(Runtimes, Oci, testing::Values("crun", "runc", "runsc"),
                         [](const auto& runtime) { return runtime.param; });

}  // namespace
}  // namespace casemate::oci_tests
