#include "casemate/backends/in_process/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "casemate/core/errors.h"

namespace casemate::in_process {
namespace {

SandboxKey a_key() { return {.scope = "tenant", .thread_id = "7", .agent_dir = "agent"}; }

SandboxSpec a_spec() {
  SandboxSpec spec;
  spec.kind = "codeact";
  return spec;
}

TEST(InProcessBackend, ClaimsNoBoundaryAndTheDefaults) {
  const BackendDeclarations declared = InProcessSandboxBackend().declarations();
  EXPECT_EQ(declared.name, "in-process");
  EXPECT_EQ(declared.isolation, Isolation::process);
  EXPECT_EQ(declared.egress_modes, (std::set{Egress::allowlist, Egress::closed}));
  EXPECT_EQ(declared.capabilities, default_capabilities());
  EXPECT_EQ(declared.limits, SandboxLimits());
  EXPECT_TRUE(declared.os_families.empty());
}

TEST(InProcessBackend, HandsOutOneSandboxForEveryKeyAndRecordsWhatWasAsked) {
  const auto sandbox = std::make_shared<InProcessSandbox>();
  InProcessSandboxBackend backend(sandbox);
  SandboxKey other = a_key();
  other.thread_id = "8";
  EXPECT_EQ(backend.acquire(a_key(), a_spec(), {}), sandbox);
  EXPECT_EQ(backend.acquire(other, a_spec(), {}), sandbox);
  EXPECT_EQ(backend.sandbox(), sandbox);
  EXPECT_EQ(backend.keys(), (std::vector{a_key(), other}));
  EXPECT_EQ(backend.specs().size(), 2U);
}

TEST(InProcessBackend, AnAcquireErrorIsThrownAndRecordsNothing) {
  InProcessSandboxBackend backend(
      nullptr, {.acquire_error = std::make_exception_ptr(SandboxUnavailable("down"))});
  EXPECT_THROW(backend.acquire(a_key(), a_spec(), {}), SandboxUnavailable);
  EXPECT_TRUE(backend.keys().empty());
  EXPECT_TRUE(backend.specs().empty());
}

TEST(InProcessBackend, RefusesWhatEveryBackendRefuses) {
  InProcessSandboxBackend backend;
  EXPECT_THROW(backend.acquire({}, a_spec(), {}), InvalidArgument);
  EXPECT_THROW(backend.acquire(a_key(), {}, {}), InvalidArgument);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(backend.acquire(a_key(), a_spec(), {.deadline = {}, .stop = stop.get_token()}),
               SandboxCancelled);
  EXPECT_THROW(backend.acquire(a_key(), a_spec(),
                               {.deadline = std::chrono::steady_clock::now(), .stop = {}}),
               SandboxTimeout);
  EXPECT_TRUE(backend.keys().empty());
}

TEST(InProcessBackend, RecordsDisposalsAndSaysTheCountItWasGiven) {
  InProcessSandboxBackend one;
  EXPECT_EQ(one.dispose(a_key()), 1);
  InProcessSandboxBackend backend(nullptr, {.purge_count = 4});
  EXPECT_EQ(backend.dispose(a_key()), 4);
  EXPECT_EQ(backend.dispose_scope("tenant", "7"), 4);
  EXPECT_EQ(backend.disposed(), std::vector{a_key()});
  EXPECT_EQ(backend.purged(), (std::vector<std::pair<std::string, std::string>>{{"tenant", "7"}}));
}

TEST(InProcessBackend, SaysWhatItsSandboxIs) {
  BackendDeclarations declared = default_declarations();
  declared.name = "pretend";
  declared.isolation = Isolation::vm;
  declared.enforceable_limits.erase(Limit::pids);
  InProcessSandboxBackend backend(nullptr, {.declarations = declared});
  SandboxSpec spec = a_spec();
  spec.work_dir = "/srv/work";
  spec.egress = Egress::allowlist;
  const auto sandbox = backend.acquire(a_key(), spec, {});
  const SandboxInfo info = sandbox->info();
  EXPECT_EQ(info.id, identity_digest(a_key(), "codeact"));
  EXPECT_EQ(info.backend, "pretend");
  EXPECT_EQ(info.isolation, Isolation::vm);
  EXPECT_EQ(info.image, "host");
  EXPECT_EQ(info.egress, Egress::allowlist);
  EXPECT_EQ(info.work_dir, "/srv/work");
  EXPECT_EQ(info.limits_not_held, std::set{Limit::pids});
  EXPECT_EQ(sandbox->open_call({.id = "0123456789ab"}, {})->directory(), "/srv/work/0123456789ab");
}

TEST(InProcessBackend, KnowsASandboxThatIsUsedAgain) {
  InProcessSandboxBackend backend;
  SandboxKey other = a_key();
  other.thread_id = "8";
  SandboxSpec other_kind = a_spec();
  other_kind.kind = "bicep";
  const auto reused = [&](const SandboxKey& key, const SandboxSpec& spec) {
    return backend.acquire(key, spec, {})->info().reused;
  };
  EXPECT_FALSE(reused(a_key(), a_spec()));
  EXPECT_TRUE(reused(a_key(), a_spec()));
  EXPECT_FALSE(reused(other, a_spec()));
  EXPECT_FALSE(reused(a_key(), other_kind));
  backend.dispose(a_key());
  EXPECT_FALSE(reused(a_key(), a_spec()));
  EXPECT_TRUE(reused(other, a_spec()));
  backend.dispose_scope("tenant", "8");
  EXPECT_FALSE(reused(other, a_spec()));
  EXPECT_TRUE(reused(a_key(), a_spec()));
}

TEST(InProcessBackend, NeverUsesAnIdTwice) {
  InProcessSandboxBackend backend;
  const auto id = [&] { return backend.acquire(a_key(), a_spec(), {})->info().id; };
  const std::string first = id();
  EXPECT_EQ(id(), first);
  EXPECT_TRUE(backend.dispose_id(first));
  const std::string second = id();
  EXPECT_NE(second, first);
  EXPECT_FALSE(backend.dispose_id(first)) << "its successor is another";
  EXPECT_TRUE(backend.dispose_id(second));
}

TEST(InProcessBackend, RefusesOperationsThatItDoesNotDeclare) {
  const auto sandbox_with = [](CapabilitySet capabilities) {
    BackendDeclarations declared = default_declarations();
    declared.capabilities = std::move(capabilities);
    return InProcessSandboxBackend(nullptr, {.declarations = declared})
        .acquire(a_key(), a_spec(), {});
  };
  const auto refused = [](Sandbox& sandbox) {
    CapabilitySet lacking;
    const auto call = sandbox.open_call({}, {});
    const auto attempt = [&](Capability capability, const auto& action) {
      try {
        action();
      } catch (const SandboxCapabilityNotSupported&) {
        lacking.insert(capability);
      }
    };
    ExecRequest request;
    request.command = Argv{{"x"}};
    attempt(Capability::exec, [&] { call->exec(request, {}); });
    attempt(Capability::run_code, [&] { sandbox.run_code("1", {}, {}); });
    for (GuestFiles* files :
         {static_cast<GuestFiles*>(call.get()), static_cast<GuestFiles*>(&sandbox)}) {
      attempt(Capability::files_in, [&] { files->write_file("a", {}, "/workspace", {}); });
      attempt(Capability::files_out, [&] { files->stat_file("a", "/workspace", {}); });
      attempt(Capability::files_out, [&] { files->list_dir("", "/workspace", {}); });
      attempt(Capability::files_list, [&] { files->list_dir("", "/workspace", {}); });
      attempt(Capability::files_delete,
              [&] { files->remove("a", "/workspace", Recursive::no, {}); });
    }
    return lacking;
  };
  EXPECT_EQ(refused(*sandbox_with(default_capabilities())),
            (CapabilitySet{Capability::run_code, Capability::files_out, Capability::files_list,
                           Capability::files_delete}));
  EXPECT_EQ(
      refused(*sandbox_with({})),
      (CapabilitySet{Capability::exec, Capability::run_code, Capability::files_in,
                     Capability::files_out, Capability::files_list, Capability::files_delete}));
}

TEST(InProcessBackend, ProbesAsItWasTold) {
  InProcessSandboxBackend backend(
      nullptr, {.probe = {.available = false, .reason = "no daemon", .engine = {}}});
  EXPECT_FALSE(backend.probe().available);
  EXPECT_EQ(backend.probe().reason, "no daemon");
  EXPECT_EQ(backend.probes(), 2);
  EXPECT_TRUE(InProcessSandboxBackend().probe().available);
}

}  // namespace
}  // namespace casemate::in_process
