// The fake's snapshots: a host's own wiring can be tried against them.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "casemate/backends/in_process/backend.h"
#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::in_process {
namespace {

const SandboxKey kKey{"tenant", "7", "agent"};
const SandboxKey kTwin{"tenant", "8", "agent"};

InProcessBackendOptions with_snapshots() {
  InProcessBackendOptions options;
  options.declarations.capabilities.insert({Capability::snapshot, Capability::files_out});
  return options;
}

SandboxSpec spec_of(std::string kind = "codeact") {
  SandboxSpec spec;
  spec.kind = std::move(kind);
  return spec;
}

std::string read(Sandbox& sandbox, std::string_view path) {
  return sandbox.read_file(path, "/workspace", 100, {});
}

class FakeSnapshots : public testing::Test {
 protected:
  InProcessSandboxBackend backend_{nullptr, with_snapshots()};
};

TEST_F(FakeSnapshots, BringBackWhatWasThere) {
  const auto sandbox = backend_.acquire(kKey, spec_of(), {});
  const std::string id = sandbox->info().id;
  backend_.sandbox()->store().put_file("/workspace/before", "kept");
  const SandboxSnapshot taken = backend_.snapshot(kKey, "codeact", {});
  EXPECT_EQ(taken.key, kKey);
  EXPECT_EQ(taken.kind, "codeact");
  EXPECT_EQ(taken.bytes, 4U);
  backend_.sandbox()->store().put_file("/workspace/after", "gone");
  const auto restored = backend_.restore(kKey, spec_of(), taken.id, {});
  EXPECT_EQ(read(*restored, "before"), "kept");
  EXPECT_FALSE(restored->stat_file("after", "/workspace", {}));
  EXPECT_NE(restored->info().id, id) << "it is another sandbox";
  EXPECT_FALSE(restored->info().reused);
}

TEST_F(FakeSnapshots, ForkIntoAnotherKeyAndLeaveNothing) {
  backend_.acquire(kKey, spec_of(), {});
  EXPECT_NE(backend_.fork(kKey, kTwin, spec_of(), {}), nullptr);
  EXPECT_EQ(backend_.keys().back(), kTwin);
  EXPECT_TRUE(backend_.snapshots().empty());
}

TEST_F(FakeSnapshots, AreRefusedWhereThereIsNothingToTake) {
  expect_refusal<NoSuchSandbox>([&] { backend_.snapshot(kKey, "codeact", {}); }, "'codeact'");
  const auto sandbox = backend_.acquire(kKey, spec_of(), {});
  const auto call = sandbox->open_call({}, {});
  expect_refusal<SandboxBusy>([&] { backend_.snapshot(kKey, "codeact", {}); }, call->id());
  call->close();
  EXPECT_NE(backend_.snapshot(kKey, "codeact", {}).id, "");
}

TEST_F(FakeSnapshots, AreRefusedWhereTheyDoNotBelong) {
  backend_.acquire(kKey, spec_of(), {});
  const std::string id = backend_.snapshot(kKey, "codeact", {}).id;
  expect_refusal<NoSuchSnapshot>([&] { backend_.restore(kTwin, spec_of(), "00", {}); }, "'00'");
  expect_refusal<NoSuchSnapshot>(
      [&] { backend_.restore({"another", "7", "agent"}, spec_of(), id, {}); }, "this scope");
  expect_refusal<SandboxSnapshotMismatch>([&] { backend_.restore(kTwin, spec_of("b"), id, {}); },
                                          "'codeact'");
  SandboxSpec larger = spec_of();
  larger.resources.memory_bytes = {64 * kMiB};
  expect_refusal<SandboxSnapshotMismatch>([&] { backend_.restore(kTwin, larger, id, {}); }, id);
}

TEST_F(FakeSnapshots, GoWithTheirConversationTheirKeyOrById) {
  backend_.acquire(kKey, spec_of(), {});
  backend_.acquire(kTwin, spec_of(), {});
  backend_.snapshot(kKey, "codeact", {});
  const SandboxSnapshot twins = backend_.snapshot(kTwin, "codeact", {});
  backend_.dispose_scope("tenant", "7");
  EXPECT_EQ(backend_.snapshots(), std::vector{twins});
  backend_.dispose(kTwin);
  EXPECT_TRUE(backend_.snapshots().empty());
  backend_.acquire(kKey, spec_of(), {});
  const std::string id = backend_.snapshot(kKey, "codeact", {}).id;
  EXPECT_TRUE(backend_.dispose_snapshot(id));
  EXPECT_FALSE(backend_.dispose_snapshot(id));
}

TEST(FakeSnapshot, IsRefusedWhereItIsNotDeclared) {
  InProcessSandboxBackend backend;
  backend.acquire(kKey, spec_of(), {});
  const auto refused = [&](const std::function<void()>& act) {
    expect_refusal<SandboxCapabilityNotSupported>(act, "declares exec, files_in");
  };
  refused([&] { backend.snapshot(kKey, "codeact", {}); });
  refused([&] { backend.restore(kTwin, spec_of(), "00", {}); });
  refused([&] { backend.fork(kKey, kTwin, spec_of(), {}); });
}

}  // namespace
}  // namespace casemate::in_process
