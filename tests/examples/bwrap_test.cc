// The backend of docs/writing-a-backend.md does what it says.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "casemate/conformance/conformance.h"
#include "casemate/policy/router.h"
#include "examples/bwrap/bwrap_backend.h"
#include "tests/support/claiming_backend.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using conformance::Report;
using conformance::Status;
using conformance::Suite;

class Bwrap : public testing::Test {
 protected:
  void SetUp() override {
    const char* build = std::getenv("CASEMATE_BUILD_DIR");
    const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
    const std::filesystem::path folder = build != nullptr ? build : beside;
    backend_ = std::make_shared<bwrap::BwrapBackend>(folder / "casemate-place-guest");
    const BackendProbe probe = backend_->probe();
    if (!probe.available) GTEST_SKIP() << "bubblewrap does not work here: " << probe.reason;
  }

  static SandboxSpec spec() {
    SandboxSpec spec;
    spec.kind = "test";
    return spec;
  }
  static SandboxKey key(std::string agent = "agent") { return {"scope", "thread", agent}; }

  std::string printed(Sandbox& sandbox, std::string line) {
    ExecRequest request;
    request.command = ShellLine{std::move(line)};
    const ExecResult result = sandbox.exec(request, {});
    EXPECT_EQ(result.exit_code, 0) << result.stderr;
    EXPECT_TRUE(result.stopped_known);
    return result.stdout;
  }

  std::shared_ptr<bwrap::BwrapBackend> backend_;
};

TEST_F(Bwrap, PassesEverySuiteOfWhatItDeclares) {
  conformance::Subject subject(backend_);
  const Report report = run_conformance(subject);
  EXPECT_EQ(report.failures(), "");
  for (const auto& result : report.results) {
    if (result.status != Status::skipped) continue;
    EXPECT_TRUE(result.suite == Suite::host_tools || result.suite == Suite::snapshot ||
                result.probe == "an-allowed-host-is-reachable" ||
                result.reason.starts_with("a bound on "))
        << result.probe << ": " << result.reason;
  }
}

TEST_F(Bwrap, KeepsTheHostOutOfSight) {
  const auto sandbox = backend_->acquire(key(), spec(), {});
  EXPECT_EQ(printed(*sandbox, "ls /"),
            "bin\ndev\nguest\nhome\nlib\nlib64\nproc\nsbin\ntmp\nusr\n"
            "workspace\n");
  EXPECT_EQ(printed(*sandbox, "id -u; grep CapEff /proc/self/status"),
            "1000\nCapEff:\t0000000000000000\n");
  // Process 1 is the guest program, which no program can end.
  EXPECT_EQ(printed(*sandbox, "kill -9 1; tr '\\0' ' ' < /proc/1/comm"), "guest\n");
  EXPECT_EQ(printed(*sandbox, "ls -l /proc/self/fd | grep -c socket: || true"), "0\n");
}

TEST_F(Bwrap, IsGetOrCreateAndKeepsFilesBetweenCalls) {
  const auto first = backend_->acquire(key(), spec(), {});
  first->write_file("note", std::string_view("kept"), "/workspace", {});
  const auto second = backend_->acquire(key(), spec(), {});
  EXPECT_FALSE(first->info().reused);
  EXPECT_TRUE(second->info().reused);
  EXPECT_EQ(printed(*second, "cat /workspace/note"), "kept");
  const auto other = backend_->acquire(key("other"), spec(), {});
  EXPECT_EQ(printed(*other, "test -e /workspace/note || echo none"), "none\n");
}

TEST_F(Bwrap, RunsCallsOneAtATimeAndABusySandboxIsNotReplaced) {
  const auto sandbox = backend_->acquire(key(), spec(), {});
  auto call = sandbox->open_call({}, {});
  const CallControl soon{
      .deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50), .stop = {}};
  EXPECT_THROW(sandbox->open_call({}, soon), SandboxTimeout);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(sandbox->open_call({}, {.deadline = {}, .stop = stop.get_token()}),
               SandboxCancelled);
  SandboxSpec another = spec();
  another.resources.pids.value = 99;
  EXPECT_THROW(backend_->acquire(key(), another, {}), SandboxBusy);
  EXPECT_TRUE(call->close());
  EXPECT_TRUE(sandbox->open_call({}, {})->close());
}

TEST_F(Bwrap, DisposesBusyOrNotAndOnlyWhatWasNamed) {
  const auto sandbox = backend_->acquire(key(), spec(), {});
  const auto other = backend_->acquire(key("other"), spec(), {});
  const auto call = sandbox->open_call({}, {});
  ExecRequest request;
  request.command = ShellLine{"exec sleep 60"};
  const auto process = call->start(request, {});
  EXPECT_TRUE(backend_->dispose_id(sandbox->info().id));
  EXPECT_THROW(process->wait({}), SandboxUnavailable);
  EXPECT_THROW(sandbox->open_call({}, {}), SandboxUnavailable);
  EXPECT_EQ(printed(*other, "echo lives"), "lives\n");
  const auto successor = backend_->acquire(key(), spec(), {});
  EXPECT_FALSE(backend_->dispose_id(sandbox->info().id)) << "no id is used twice";
  EXPECT_TRUE(backend_->dispose_id(successor->info().id));
  EXPECT_EQ(backend_->dispose_scope("scope", "thread"), 1);
  EXPECT_EQ(backend_->dispose(key()), 0);
}

TEST_F(Bwrap, IsRefusedWhatItDoesNotShow) {
  SandboxRouter router({backend_}, {.min_isolation = Isolation::container});
  SandboxSpec online = spec();
  online.egress = Egress::unrestricted;
  EXPECT_THROW(router.acquire(key(), online, {}), SandboxEgressNotEnforced);
  EXPECT_THROW(backend_->acquire(key(), online, {}), SandboxEgressNotEnforced);
  SandboxSpec bounded = spec();
  bounded.resources.memory_bytes = stated(64 * kMiB);
  EXPECT_THROW(backend_->acquire(key(), bounded, {}), SandboxLimitNotEnforceable);
  EXPECT_THROW(SandboxRouter({backend_}, {.min_isolation = Isolation::microvm}),
               SandboxBackendNotPermitted);
  const auto sandbox = backend_->acquire(key(), spec(), {});
  EXPECT_TRUE(sandbox->info().limits_not_held.contains(Limit::memory));
}

// What there is of the rung that `backend` claims, if all of it is not seen; empty if it is.
std::string rung_missed(std::shared_ptr<SandboxBackend> backend) {
  conformance::Subject subject(std::move(backend));
  conformance::ConformanceOptions options;
  options.suites = {Suite::rung};
  const Report report = run_conformance(subject, options);
  return report.passed() ? "" : report.results.at(0).seen;
}

TEST_F(Bwrap, ShowsTheRungThatItClaimsAndNoneAbove) {
  EXPECT_EQ(rung_missed(backend_), "");
  EXPECT_EQ(rung_missed(std::make_shared<ClaimingBackend>(backend_, Isolation::os_process)), "");
  EXPECT_EQ(rung_missed(std::make_shared<ClaimingBackend>(backend_, Isolation::hardened_container)),
            "not seen: a kernel that is not the host's");
  for (const Isolation rung : {Isolation::microvm, Isolation::vm}) {
    EXPECT_EQ(rung_missed(std::make_shared<ClaimingBackend>(backend_, rung)),
              "not seen: a kernel that is not the host's; a first process on this host that has a "
              "virtual machine of the kernel's open");
  }
}

TEST_F(Bwrap, IsSeenFromOutsideWhileACallIsOpen) {
  const auto sandbox = backend_->acquire(key(), spec(), {});
  EXPECT_EQ(sandbox->first_process(), std::nullopt);
  const auto call = sandbox->open_call({}, {});
  const auto process = sandbox->first_process();
  ASSERT_TRUE(process);
  std::ifstream status("/proc/" + std::to_string(*process) + "/status");
  const std::string text(std::istreambuf_iterator<char>(status), {});
  EXPECT_NE(text.find("NSpid:\t" + std::to_string(*process) + "\t1\n"), std::string::npos) << text;
}

TEST(BwrapWithoutAGuestProgram, IsNotAvailable) {
  bwrap::BwrapBackend backend("/nonexistent/guest");
  const BackendProbe probe = backend.probe();
  EXPECT_FALSE(probe.available);
  EXPECT_NE(probe.reason, "");
}

}  // namespace
}  // namespace casemate
