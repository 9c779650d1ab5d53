#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "casemate/policy/backends_test.h"
#include "casemate/policy/router.h"

namespace casemate {
namespace {

using testing::HasSubstr;

const RouterOptions kFirst{.min_isolation = Isolation::container,
                           .selection = Selection::first_that_can_serve};

TEST(RouterAcquire, AsksTheSelectedBackendWithTheKeyAndTheSpec) {
  const auto backend = backend_at("linux", Isolation::vm);
  const auto other = backend_at("other", Isolation::vm);
  const SandboxRouter router({other, backend}, {.selected = "linux"});
  SandboxSpec spec = plain_spec();
  spec.labels["team"] = "reports";
  EXPECT_EQ(router.acquire(a_key(), spec, {}), backend->sandbox());
  EXPECT_EQ(backend->keys(), std::vector{a_key()});
  EXPECT_EQ(backend->specs().at(0).labels, spec.labels);
  EXPECT_TRUE(other->keys().empty());
}

TEST(RouterAcquire, RefusesWithoutABackend) {
  EXPECT_EQ(code_of([] { SandboxRouter({}).acquire({}, {}, {}); }), "NoSandboxBackend");
}

TEST(RouterAcquire, RefusesAnEmptyKeyPartBeforeTheSpec) {
  const auto backend = backend_at("linux", Isolation::vm);
  const SandboxRouter router({backend});
  SandboxSpec spec = plain_spec();
  spec.egress = Egress::unrestricted;
  for (const auto part : {&SandboxKey::scope, &SandboxKey::thread_id, &SandboxKey::agent_dir}) {
    SandboxKey key = a_key();
    key.*part = "";
    EXPECT_EQ(code_of([&] { router.acquire(key, spec, {}); }), "InvalidArgument");
  }
  EXPECT_TRUE(backend->keys().empty());
}

TEST(RouterAcquire, PassesOnWhatTheBackendThrows) {
  const auto backend = std::make_shared<InProcessSandboxBackend>(
      nullptr, in_process::InProcessBackendOptions{
                   .declarations = declared_as("linux", Isolation::vm),
                   .acquire_error = std::make_exception_ptr(SandboxBusy("in use"))});
  const SandboxRouter router({backend});
  EXPECT_EQ(code_of([&] { router.acquire(a_key(), plain_spec(), {}); }), "SandboxBusy");
}

TEST(RouterAcquire, HandsOnTheCallersControl) {
  const SandboxRouter router({backend_at("linux", Isolation::vm)});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(code_of([&] {
              router.acquire(a_key(), plain_spec(), {.deadline = {}, .stop = stop.get_token()});
            }),
            "SandboxCancelled");
}

// -- One configured backend
// ------------------------------------------------------------------------

TEST(RouterConfigured, NeverSubstitutesAnotherBackend) {
  BackendDeclarations closed_only = declared_as("closed", Isolation::vm);
  closed_only.egress_modes = {Egress::closed};
  const SandboxRouter router({backend_with(closed_only), backend_at("both", Isolation::vm)});
  SandboxSpec spec = plain_spec();
  spec.egress = Egress::allowlist;
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(spec); }), "SandboxEgressNotEnforced");
}

TEST(RouterConfigured, DoesNotProbe) {
  const auto backend = backend_with(declared_as("linux", Isolation::vm), unavailable("no"));
  const SandboxRouter router({backend});
  router.acquire(a_key(), plain_spec(), {});
  EXPECT_EQ(backend->probes(), 0);
}

// -- The first that can serve
// ----------------------------------------------------------------------

TEST(RouterFirst, TakesTheFirstInOrderThatCanServeAndIsAvailable) {
  const auto weak = backend_at("weak", Isolation::process);
  const auto absent =
      backend_with(declared_as("absent", Isolation::container), unavailable("no daemon"));
  const auto good = backend_at("good", Isolation::container);
  const auto also_good = backend_at("also good", Isolation::vm);
  const SandboxRouter router({weak, absent, good, also_good}, kFirst);
  EXPECT_EQ(router.backend(), nullptr);
  EXPECT_EQ(router.backend_for(plain_spec()), good);
  EXPECT_EQ(router.acquire(a_key(), plain_spec(), {}), good->sandbox());
  EXPECT_EQ(weak->probes(), 0) << "a backend that may not serve is not started";
  EXPECT_EQ(also_good->probes(), 0);

  SandboxSpec strict = plain_spec();
  strict.min_isolation = Isolation::vm;
  EXPECT_EQ(router.backend_for(strict), also_good);
}

TEST(RouterFirst, KeepsTheOnlyBackendsOwnRefusal) {
  const SandboxRouter router({backend_at("linux", Isolation::container)}, kFirst);
  SandboxSpec spec = plain_spec();
  spec.egress = Egress::unrestricted;
  const auto refused = refusal_of([&] { router.ensure_can_serve(spec); });
  const SandboxRouter configured({backend_at("linux", Isolation::container)},
                                 {.min_isolation = Isolation::container});
  const auto expected = refusal_of([&] { configured.ensure_can_serve(spec); });
  ASSERT_TRUE(refused && expected);
  EXPECT_EQ(refused->code, "SandboxEgressNotEnforced");
  EXPECT_EQ(refused->message, expected->message);
  EXPECT_EQ(refused->hint, expected->hint);
}

TEST(RouterFirst, KeepsTheRefusalThatAllShareAndListsEachReason) {
  const SandboxRouter router(
      {backend_at("one", Isolation::container), backend_at("two", Isolation::microvm)}, kFirst);
  SandboxSpec spec = plain_spec();
  spec.min_isolation = Isolation::vm;
  const auto refused = refusal_of([&] { router.ensure_can_serve(spec); });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, "SandboxBackendNotPermitted");
  EXPECT_THAT(refused->message, HasSubstr("no backend can serve kind 'codeact'"));
  EXPECT_THAT(refused->message, HasSubstr("'one' declares isolation 'container'"));
  EXPECT_THAT(refused->message, HasSubstr("'two' declares isolation 'microvm'"));
}

TEST(RouterFirst, ListsEveryBackendsReasonWhenTheyDiffer) {
  const auto absent = backend_with(declared_as("absent", Isolation::vm), unavailable("no daemon"));
  const auto broken = std::make_shared<ShiftingBackend>();
  broken->declare = [] { return declared_as("broken", Isolation::vm); };
  const SandboxRouter router({backend_at("weak", Isolation::process), absent, broken}, kFirst);
  broken->declare = []() -> BackendDeclarations { throw std::runtime_error("lost\nits mind"); };
  for (const auto& action : {std::function([&] { router.ensure_can_serve(plain_spec()); }),
                             std::function([&] { router.acquire(a_key(), plain_spec(), {}); })}) {
    const auto refused = refusal_of(action);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, "NoSandboxBackend");
    EXPECT_THAT(refused->message, HasSubstr("SandboxBackendNotPermitted: backend 'weak'"));
    EXPECT_THAT(refused->message,
                HasSubstr("SandboxUnavailable: backend 'absent' is not available here: no daemon"));
    EXPECT_THAT(refused->message, HasSubstr("backend number 3 failed when it was asked: lost\\n"));
  }
}

TEST(RouterFirst, SaysThatNoneIsAvailable) {
  const SandboxRouter router(
      {backend_with(declared_as("absent", Isolation::vm), unavailable("no daemon"))}, kFirst);
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(plain_spec()); }), "SandboxUnavailable");
}

TEST(RouterFirst, HostDenialsAndBadSpecsComeAsThemselves) {
  RouterOptions options = kFirst;
  options.denied_capabilities = {Capability::exec};
  options.denied_identities = {Identity::app};
  const auto first = backend_at("one", Isolation::vm);
  const SandboxRouter router({first, backend_at("two", Isolation::process)}, options);
  SandboxSpec spec = plain_spec();
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(spec); }), "SandboxCapabilityDenied");
  spec.requires_capabilities = {Capability::files_in};
  spec.identities = {Identity::app};
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(spec); }), "SandboxIdentityDenied");
  spec.identities = {};
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(spec); }), "nothing");
  spec.image_id = "";
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(spec); }), "InvalidArgument");
  EXPECT_EQ(first->probes(), 1);
}

TEST(RouterFirst, RemembersAvailabilityUntilAnAcquireFails) {
  const auto backend = std::make_shared<ShiftingBackend>();
  backend->declare = [] { return declared_as("linux", Isolation::vm); };
  const SandboxRouter router({backend}, kFirst);
  backend->on_probe = [] { return unavailable("not yet"); };
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(plain_spec()); }), "SandboxUnavailable");
  backend->on_probe = [] { return BackendProbe(); };
  router.ensure_can_serve(plain_spec());
  EXPECT_EQ(backend->probes, 2) << "a no is not remembered";
  router.acquire(a_key(), plain_spec(), {});
  EXPECT_EQ(backend->probes, 2);

  backend->on_acquire = []() -> std::shared_ptr<Sandbox> { throw SandboxBusy("in use"); };
  EXPECT_EQ(code_of([&] { router.acquire(a_key(), plain_spec(), {}); }), "SandboxBusy");
  router.ensure_can_serve(plain_spec());
  EXPECT_EQ(backend->probes, 2);
  backend->on_acquire = []() -> std::shared_ptr<Sandbox> { throw SandboxUnavailable("gone"); };
  EXPECT_EQ(code_of([&] { router.acquire(a_key(), plain_spec(), {}); }), "SandboxUnavailable");
  router.ensure_can_serve(plain_spec());
  EXPECT_EQ(backend->probes, 3);
}

TEST(RouterFirst, LogsWhatItPassedOver) {
  std::vector<std::string> lines;
  RouterOptions options = kFirst;
  options.log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
  const SandboxRouter router(
      {backend_at("weak", Isolation::process), backend_at("good", Isolation::vm)}, options);
  router.ensure_can_serve(plain_spec());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("passed over: SandboxBackendNotPermitted: backend 'weak'"));
}

TEST(RouterFirst, NamesTheLimitsOfTheBackendThatServes) {
  BackendDeclarations weak = declared_as("weak", Isolation::process);
  weak.enforceable_limits = {};
  BackendDeclarations good = declared_as("good", Isolation::vm);
  good.enforceable_limits.erase(Limit::pids);
  const SandboxRouter router({backend_with(weak), backend_with(good)}, kFirst);
  EXPECT_EQ(router.limits_not_held(plain_spec()), std::set{Limit::pids});
}

TEST(Router, MayBeUsedFromSeveralThreads) {
  const auto good = backend_at("good", Isolation::vm);
  const SandboxRouter router({backend_at("weak", Isolation::process), good}, kFirst);
  constexpr int kRounds = 50;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([router] {
        for (int round = 0; round < kRounds; ++round) {
          router.ensure_can_serve(plain_spec());
          router.acquire(a_key(), plain_spec(), {});
          router.dispose(a_key());
        }
      });
    }
  }
  EXPECT_EQ(good->keys().size(), 4U * kRounds);
  EXPECT_EQ(good->disposed().size(), 4U * kRounds);
}

}  // namespace
}  // namespace casemate
