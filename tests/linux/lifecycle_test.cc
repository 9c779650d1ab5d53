// Who owns a sandbox, who finds it, and how long it waits: across threads and processes.

#include "tests/linux/lifecycle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/local/state_directory.h"
#include "casemate/policy/router.h"
#include "casemate/sys/unique_fd.h"
#include "casemate/transfer/sink.h"
#include "tests/linux/other_process.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
namespace fs = std::filesystem;

TEST_F(LinuxLifecycle, TheSecondAcquireOfAKeyFindsTheFirstsSandbox) {
  const auto first = acquire(key(), spec());
  const auto second = acquire(key(), spec());
  EXPECT_FALSE(first->info().reused);
  EXPECT_TRUE(second->info().reused);
  EXPECT_EQ(first->info().id, second->info().id);
  EXPECT_EQ(first->info().backend, under_a_runtime() ? "oci" : "linux");
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

// A sandbox whose time runs out as any other's: once it is gone, so much has passed since it was
// let go.
class IdleClock {
 public:
  IdleClock(std::unique_ptr<local::LocalBackend> backend, const SandboxKey& key,
            const SandboxSpec& spec)
      : backend_(std::move(backend)) {
    sandbox_ = backend_->acquire(key, spec, {});
    agent_ = sandbox_->first_process().value_or(-1);
  }
  void run_out() {
    ASSERT_GT(agent_, 0);
    sandbox_.reset();
    backend_.reset();
    EXPECT_TRUE(wait_until_gone(agent_));
  }

 private:
  std::unique_ptr<local::LocalBackend> backend_;
  std::shared_ptr<Sandbox> sandbox_;
  pid_t agent_ = -1;
};

// Takes what it is given when it has done something else.
class LateSink : public OutputSink {
 public:
  explicit LateSink(std::function<void()> first) : first_(std::move(first)) {}
  LandedArtifact deliver(const Artifact& artifact) override {
    first_();
    return {artifact.name, artifact.name, {}, artifact.content.size()};
  }

 private:
  std::function<void()> first_;
};

// LC-16
TEST_F(LinuxLifecycle, ASandboxIsInUseHoweverLongItsOutputsAreDelivered) {
  const SandboxSpec patient =
      codeact_sandbox_spec({.outputs = CodeactOutputs::declared, .keep_idle = 1s});
  IdleClock clock(another_backend(), key("clock"), patient);
  // Its time has begun once before, and ends when it is found again.
  another_backend()->acquire(key(), patient, {});
  const std::shared_ptr<SandboxBackend> host = another_backend();
  const CodeactWiring wiring{
      .router = SandboxRouter({host}, {.min_isolation = Isolation::container}),
      .spec = patient,
      .outputs = CodeactOutputs::declared,
      .output_sink = std::make_shared<LateSink>([&] { clock.run_out(); }),
      .owner = {"a test", {}, {}}};
  CodeactRequest request;
  request.code = "open('out', 'w').write('here')\nopen('/home/user/kept', 'w').write('kept')";
  request.outputs = {"out"};
  const CodeactRun run = run_codeact(wiring, key(), request, {});
  EXPECT_FALSE(run.collect_error);
  ASSERT_EQ(run.artifacts.size(), 1U) << run.result.stderr;
  EXPECT_EQ(run.artifacts[0].bytes, 4U);
  const auto again = host->acquire(key(), patient, {});
  EXPECT_EQ(again->info().id, run.sandbox.id);
  EXPECT_EQ(again->exec(shell("cat ~/kept"), {}).stdout, "kept");
}

// LC-16
TEST_F(LinuxLifecycle, ASandboxIsInUseHoweverLongAFileIsRead) {
  SandboxSpec patient = spec();
  patient.keep_idle = 1s;
  IdleClock clock(another_backend(), key("clock"), patient);
  another_backend()->acquire(key(), patient, {});
  const auto host = another_backend();
  const auto call = host->acquire(key(), patient, {})->open_call({}, {});
  call->write_file("out", "here"s, call->directory(), {});
  // What wrote it reads it too: the call's only process.
  const std::vector<pid_t> calls = children_of(*host->attach(key(), "test", {})->first_process());
  ASSERT_EQ(calls.size(), 1U);
  const std::vector<pid_t> servers = children_of(calls[0]);
  ASSERT_EQ(servers.size(), 1U);
  ASSERT_EQ(kill(servers[0], SIGSTOP), 0);
  auto read = std::async(std::launch::async,
                         [&] { return call->read_file("out", call->directory(), 100, {}); });
  clock.run_out();
  ASSERT_EQ(kill(servers[0], SIGCONT), 0);
  EXPECT_EQ(read.get(), "here");
  EXPECT_EQ(call->exec(shell("cat ../out"), {}).stdout, "here");
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

TEST_F(LinuxLifecycle, LabelsAreKeptWithTheSandbox) {
  SandboxSpec labelled = spec();
  labelled.labels = {{"team", "red"}, {"id", "not ours"}};
  const auto own = acquire(key(), labelled);
  std::ifstream file(sandbox_directories().at(0) / "record.json");
  const auto record = local::decode_record(
      std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->labels, labelled.labels);
  EXPECT_EQ(another_backend()->list().at(0).labels, labelled.labels);
  EXPECT_EQ(record->id, own->info().id);
}

TEST_F(LinuxLifecycle, AStateDirectoryOfOthersIsRefused) {
  const fs::path open_to_all = state() / "open";
  fs::create_directory(open_to_all);
  fs::permissions(open_to_all, fs::perms::owner_all | fs::perms::others_read);
  const auto other = make_backend({.state_dir = open_to_all, .log = {}});
  expect_refusal<SandboxUnavailable>([&] { other->acquire(key(), spec(), {}); }, {"open", "700"});
  EXPECT_FALSE(other->probe().available);
  EXPECT_TRUE(fs::is_empty(open_to_all)) << "a keeper began in it";
  fs::create_directory_symlink(state(), state() / "link");
  const auto linked = make_backend({.state_dir = state() / "link", .log = {}});
  expect_refusal<SandboxUnavailable>([&] { linked->acquire(key(), spec(), {}); }, "link");
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
  wanted.requires_capabilities = {Capability::run_code};
  expect_refusal<SandboxCapabilityNotSupported>([&] { acquire(key(), wanted); }, "run_code");
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
