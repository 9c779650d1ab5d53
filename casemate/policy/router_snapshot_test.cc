#include <gtest/gtest.h>

#include "casemate/policy/backends_test.h"
#include "casemate/policy/router.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

SandboxKey twin_key() { return {.scope = "tenant", .thread_id = "8", .agent_dir = "agent"}; }

std::shared_ptr<InProcessSandboxBackend> keeping(std::string name) {
  BackendDeclarations declared = declared_as(std::move(name), Isolation::vm);
  declared.capabilities.insert(Capability::snapshot);
  return backend_with(std::move(declared));
}

// Each operation that needs a backend, with the refusal that it is to meet.
template <typename Refused>
void expect_each_refused(const SandboxRouter& router, const std::string& text) {
  expect_refusal<Refused>([&] { router.snapshot(a_key(), plain_spec(), {}); }, text);
  expect_refusal<Refused>([&] { router.restore(a_key(), plain_spec(), "00", {}); }, text);
  expect_refusal<Refused>([&] { router.fork(a_key(), twin_key(), plain_spec(), {}); }, text);
}

TEST(RouterSnapshots, AreTakenOfTheBackendThatServesTheSpec) {
  const auto backend = keeping("keeps");
  const SandboxRouter router({backend});
  router.acquire(a_key(), plain_spec(), {});
  backend->sandbox()->store().put_file("/workspace/a", "1");
  const SandboxSnapshot taken = router.snapshot(a_key(), plain_spec(), {});
  EXPECT_EQ(taken.backend, "keeps");
  backend->sandbox()->store().put_file("/workspace/a", "2");
  const auto restored = router.restore(twin_key(), plain_spec(), taken.id, {});
  EXPECT_EQ(restored->read_file("a", "/workspace", 9, {}), "1");
  EXPECT_EQ(backend->keys().back(), twin_key());
  EXPECT_NE(router.fork(a_key(), twin_key(), plain_spec(), {}), nullptr);
  EXPECT_TRUE(router.dispose_snapshot(taken.id));
  EXPECT_FALSE(router.dispose_snapshot(taken.id));
}

TEST(RouterSnapshots, AreRefusedByAHostThatDeniesThem) {
  const SandboxRouter router({keeping("keeps")}, {.denied_capabilities = {Capability::snapshot}});
  expect_each_refused<SandboxCapabilityDenied>(router, "snapshot");
  EXPECT_NE(router.acquire(a_key(), plain_spec(), {}), nullptr) << "an acquire takes none";
}

TEST(RouterSnapshots, AreRefusedWhereTheBackendDoesNotDeclareThem) {
  const SandboxRouter router({backend_at("keeps none", Isolation::vm)});
  expect_each_refused<SandboxCapabilityNotSupported>(router, "keeps none");
}

TEST(RouterSnapshots, AreRefusedBelowTheFloor) {
  BackendDeclarations weak = keeping("weak")->declarations();
  weak.isolation = Isolation::container;
  const SandboxRouter router({backend_with(weak)}, {.min_isolation = Isolation::container});
  SandboxSpec spec = plain_spec();
  spec.min_isolation = Isolation::vm;
  expect_refusal<SandboxBackendNotPermitted>([&] { router.snapshot(a_key(), spec, {}); }, "vm");
}

TEST(RouterSnapshots, NeedABackendAndAKey) {
  expect_each_refused<NoSandboxBackend>(SandboxRouter({}), "no backend");
  const SandboxRouter router({keeping("keeps")});
  expect_refusal<InvalidArgument>([&] { router.snapshot({"s", "", "a"}, plain_spec(), {}); },
                                  "thread");
  EXPECT_FALSE(SandboxRouter({}).dispose_snapshot("00"));
}

TEST(RouterSnapshots, AreTakenByTheFirstThatKeepsThem) {
  const auto none = backend_at("keeps none", Isolation::vm);
  const auto keeps = keeping("keeps");
  const SandboxRouter router({none, keeps}, {.selection = Selection::first_that_can_serve});
  SandboxSpec spec = plain_spec();
  spec.requires_capabilities.insert(Capability::snapshot);
  router.acquire(a_key(), spec, {});
  EXPECT_EQ(router.snapshot(a_key(), spec, {}).backend, "keeps");
  EXPECT_TRUE(none->keys().empty());
}

}  // namespace
}  // namespace casemate
