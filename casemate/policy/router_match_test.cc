#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "casemate/policy/backends_test.h"
#include "casemate/policy/router.h"

namespace casemate {
namespace {

using testing::HasSubstr;
using testing::Not;

// A host, a backend and a spec that fit; tests spoil them.
struct Pairing {
  RouterOptions options{.min_isolation = Isolation::container};
  BackendDeclarations declared = declared_as("linux", Isolation::container);
  SandboxSpec spec = plain_spec();

  std::optional<Refused> refusal() const {
    const SandboxRouter router({backend_with(declared)}, options);
    return refusal_of([&] { router.ensure_can_serve(spec); });
  }
  std::string code() const {
    const auto refused = refusal();
    return refused ? refused->code : "nothing";
  }
};

struct Fault {
  std::string code;
  std::function<void(Pairing&)> spoil;
};

// One a step, in the contract's order.
const std::vector<Fault>& faults() {
  static const std::vector<Fault> kFaults{
      {"InvalidArgument", [](Pairing& pairing) { pairing.spec.kind = ""; }},
      {"SandboxCapabilityDenied",
       [](Pairing& pairing) { pairing.options.denied_capabilities = {Capability::exec}; }},
      {"SandboxIdentityDenied",
       [](Pairing& pairing) {
         pairing.spec.identities = {Identity::app};
         pairing.options.denied_identities = {Identity::app};
       }},
      {"SandboxBackendNotPermitted",
       [](Pairing& pairing) { pairing.spec.min_isolation = Isolation::vm; }},
      {"SandboxCapabilityNotSupported",
       [](Pairing& pairing) { pairing.spec.requires_capabilities.insert(Capability::snapshot); }},
      {"SandboxOsFamilyNotSupported",
       [](Pairing& pairing) { pairing.spec.requires_os_family = OsFamily::windows; }},
      {"SandboxTransferLimitsNotPermitted",
       [](Pairing& pairing) { ++pairing.spec.files_in.max_files; }},
      {"SandboxEgressNotEnforced",
       [](Pairing& pairing) { pairing.spec.egress = Egress::unrestricted; }},
      {"SandboxImageNotSupported", [](Pairing& pairing) { pairing.spec.image = "oci:/images/a"; }},
      {"SandboxLimitNotEnforceable",
       [](Pairing& pairing) {
         pairing.spec.resources.memory_bytes = stated(64 * kMiB);
         pairing.declared.enforceable_limits.erase(Limit::memory);
       }},
  };
  return kFaults;
}

TEST(RouterMatch, LetsAFittingPairPass) { EXPECT_EQ(Pairing().code(), "nothing"); }

TEST(RouterMatch, RefusesEachFaultByItsName) {
  for (const Fault& fault : faults()) {
    Pairing pairing;
    fault.spoil(pairing);
    EXPECT_EQ(pairing.code(), fault.code);
  }
}

TEST(RouterMatch, GivesTheEarliestOfSeveralRefusals) {
  for (std::size_t early = 0; early < faults().size(); ++early) {
    for (std::size_t late = early + 1; late < faults().size(); ++late) {
      Pairing pairing;
      faults()[late].spoil(pairing);
      faults()[early].spoil(pairing);
      EXPECT_EQ(pairing.code(), faults()[early].code) << "with " << faults()[late].code;
    }
  }
}

TEST(RouterMatch, RefusesTheSameThroughEveryEntryPoint) {
  for (const Fault& fault : faults()) {
    Pairing pairing;
    fault.spoil(pairing);
    const auto backend = backend_with(pairing.declared);
    const SandboxRouter router({backend}, pairing.options);
    EXPECT_EQ(code_of([&] { router.acquire(a_key(), pairing.spec, {}); }), fault.code);
    EXPECT_EQ(code_of([&] { router.backend_for(pairing.spec); }), fault.code);
    EXPECT_EQ(code_of([&] { router.limits_not_held(pairing.spec); }), fault.code);
    EXPECT_TRUE(backend->keys().empty());
  }
}

TEST(RouterMatch, ADisabledRouterRefusesNothing) {
  const SandboxRouter router({});
  for (const Fault& fault : faults()) {
    Pairing pairing;
    fault.spoil(pairing);
    router.ensure_can_serve(pairing.spec);
  }
}

TEST(RouterMatch, DeniesOnlyWhatTheSpecUses) {
  Pairing pairing;
  pairing.options.denied_capabilities = {Capability::files_out, Capability::snapshot};
  pairing.options.denied_identities = {Identity::user};
  pairing.spec.identities = {Identity::app};
  EXPECT_EQ(pairing.code(), "nothing");
  pairing.options.denied_capabilities.insert(Capability::files_in);
  EXPECT_THAT(pairing.refusal()->message, HasSubstr("requires files_in,"));
}

// -- Isolation
// -------------------------------------------------------------------------------------

TEST(RouterMatch, MeasuresTheBackendAgainstTheStricterFloor) {
  for (int declared = 0; declared <= 6; ++declared) {
    for (int host = 0; host <= declared; ++host) {
      for (int asked = 0; asked <= 6; ++asked) {
        Pairing pairing;
        pairing.declared.isolation = static_cast<Isolation>(declared);
        pairing.options.min_isolation = static_cast<Isolation>(host);
        pairing.spec.min_isolation = static_cast<Isolation>(asked);
        EXPECT_EQ(pairing.code(), declared >= asked ? "nothing" : "SandboxBackendNotPermitted")
            << declared << ", host " << host << ", spec " << asked;
      }
    }
  }
}

TEST(RouterMatch, RefusesAnUnknownRungThatASpecAsksFor) {
  Pairing pairing;
  pairing.declared.isolation = Isolation::vm;
  for (const int rung : {7, 200}) {
    pairing.spec.min_isolation = static_cast<Isolation>(rung);
    EXPECT_EQ(pairing.code(), "SandboxBackendNotPermitted");
  }
}

TEST(RouterMatch, ReadsTheDeclaredRungAnewEachTime) {
  const auto backend = std::make_shared<ShiftingBackend>();
  BackendDeclarations declared = declared_as("shifting", Isolation::microvm);
  backend->declare = [&] { return declared; };
  const SandboxRouter router({backend});
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(plain_spec()); }), "nothing");
  for (const std::optional<Isolation> rung :
       {std::optional<Isolation>(), std::optional(static_cast<Isolation>(7)),
        std::optional(Isolation::hardened_container)}) {
    declared.isolation = rung;
    EXPECT_EQ(code_of([&] { router.ensure_can_serve(plain_spec()); }),
              "SandboxBackendNotPermitted");
  }
  declared.isolation = Isolation::vm;
  EXPECT_EQ(code_of([&] { router.ensure_can_serve(plain_spec()); }), "nothing");
}

// -- Capabilities, OS family
// -----------------------------------------------------------------------

TEST(RouterMatch, ListsWhatIsMissingAndWhatIsDeclared) {
  Pairing pairing;
  pairing.spec.requires_capabilities = {Capability::exec, Capability::files_list,
                                        Capability::files_delete};
  const auto refused = pairing.refusal();
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("requires files_list, files_delete, which"));
  EXPECT_THAT(refused->message, HasSubstr("declares exec, files_in, files_out"));
}

TEST(RouterMatch, TakesTheDeclaredOsFamily) {
  Pairing pairing;
  pairing.spec.requires_os_family = OsFamily::posix;
  EXPECT_EQ(pairing.code(), "SandboxOsFamilyNotSupported");
  EXPECT_THAT(pairing.refusal()->message, HasSubstr("it declares nothing"));
  pairing.declared.os_families = {OsFamily::posix};
  EXPECT_EQ(pairing.code(), "nothing");
  pairing.spec.requires_os_family = OsFamily::windows;
  EXPECT_EQ(pairing.code(), "SandboxOsFamilyNotSupported");
}

// -- Transfer limits
// -------------------------------------------------------------------------------

using Field = std::uint64_t TransferLimits::*;
constexpr Field kFields[] = {&TransferLimits::max_bytes_per_file, &TransferLimits::max_total_bytes,
                             &TransferLimits::max_files};

TEST(RouterMatch, LimitsPassAtTheCeilingAndAreRefusedOneAbove) {
  for (const auto direction : {&SandboxLimits::files_in, &SandboxLimits::files_out}) {
    const bool in = direction == &SandboxLimits::files_in;
    for (const Field field : kFields) {
      Pairing pairing;
      pairing.spec.requires_capabilities.insert(Capability::files_out);
      TransferLimits& asked = in ? pairing.spec.files_in : pairing.spec.files_out;
      const std::uint64_t ceiling = (pairing.declared.limits.*direction).*field;
      asked.*field = ceiling - 1;
      EXPECT_EQ(pairing.code(), "nothing");
      asked.*field = ceiling;
      EXPECT_EQ(pairing.code(), "nothing");
      asked.*field = ceiling + 1;
      const auto refused = pairing.refusal();
      ASSERT_TRUE(refused);
      EXPECT_EQ(refused->code, "SandboxTransferLimitsNotPermitted");
      EXPECT_THAT(refused->message, HasSubstr(in ? "files_in" : "files_out"));
      EXPECT_THAT(refused->message, Not(HasSubstr(in ? "files_out" : "files_in")));
      EXPECT_THAT(refused->message, HasSubstr(std::to_string(ceiling + 1)));
      EXPECT_THAT(refused->message, HasSubstr(std::to_string(ceiling)));
    }
  }
}

TEST(RouterMatch, NamesFilesInBeforeFilesOut) {
  Pairing pairing;
  pairing.spec.requires_capabilities.insert(Capability::files_out);
  ++pairing.spec.files_in.max_files;
  ++pairing.spec.files_out.max_files;
  EXPECT_THAT(pairing.refusal()->message, HasSubstr("more files_in"));
}

TEST(RouterMatch, MatchesADirectionOnlyWhenTheSpecCanUseIt) {
  Pairing pairing;
  pairing.spec.requires_capabilities = {Capability::exec};
  ++pairing.spec.files_in.max_files;
  ++pairing.spec.files_out.max_files;
  EXPECT_EQ(pairing.code(), "nothing");

  Pairing in = pairing;
  in.spec.requires_capabilities.insert(Capability::files_in);
  EXPECT_EQ(in.code(), "SandboxTransferLimitsNotPermitted");
  Pairing out = pairing;
  out.spec.requires_capabilities.insert(Capability::files_out);
  EXPECT_EQ(out.code(), "SandboxTransferLimitsNotPermitted");
  Pairing declared = pairing;
  declared.spec.declared_outputs.emplace_back().path = "a";
  EXPECT_EQ(declared.code(), "SandboxTransferLimitsNotPermitted");
  Pairing named_later = pairing;
  named_later.spec.outputs_named_at_call_time = true;
  EXPECT_EQ(named_later.code(), "SandboxTransferLimitsNotPermitted");
}

TEST(RouterMatch, RefusesADeclaredLimitOfZeroAndTakesOne) {
  for (const auto direction : {&SandboxLimits::files_in, &SandboxLimits::files_out}) {
    for (const Field field : kFields) {
      Pairing pairing;  // asks for nothing that moves a file
      pairing.spec.requires_capabilities = {Capability::exec};
      (pairing.declared.limits.*direction).*field = 0;
      ASSERT_EQ(pairing.code(), "SandboxTransferLimitsNotPermitted");
      EXPECT_THAT(pairing.refusal()->message, HasSubstr("malformed"));
      EXPECT_THAT(
          pairing.refusal()->message,
          HasSubstr(direction == &SandboxLimits::files_in ? "files_in.max" : "files_out.max"));
      (pairing.declared.limits.*direction).*field = 1;
      EXPECT_EQ(pairing.code(), "nothing");
    }
  }
}

TEST(RouterMatch, NamesMalformedLimitsBeforeExceededOnes) {
  Pairing pairing;
  ++pairing.spec.files_in.max_files;
  pairing.declared.limits.files_out.max_files = 0;
  EXPECT_THAT(pairing.refusal()->message, HasSubstr("malformed"));
}

// -- Egress, image, resources
// ----------------------------------------------------------------------

// EG-24: a list is never given to a backend that would not hold it, and saying nothing is holding
// nothing.
TEST(RouterMatch, ServesAnEgressModeExactlyOrNotAtAll) {
  const Egress modes[] = {Egress::unrestricted, Egress::allowlist, Egress::closed};
  for (const Egress asked : modes) {
    for (const Egress enforced : modes) {
      Pairing pairing;
      pairing.spec.egress = asked;
      pairing.declared.egress_modes = {enforced};
      EXPECT_EQ(pairing.code(), asked == enforced ? "nothing" : "SandboxEgressNotEnforced");
    }
    Pairing none;
    none.spec.egress = asked;
    none.declared.egress_modes = {};
    EXPECT_EQ(none.code(), "SandboxEgressNotEnforced");
    EXPECT_THAT(none.refusal()->message, HasSubstr("it enforces nothing"));
  }
}

TEST(RouterMatch, MatchesTheFormOfAnImageAndLetsTheBackendChooseItsOwn) {
  Pairing pairing;
  pairing.declared.image_forms = {};
  EXPECT_EQ(pairing.code(), "nothing");
  for (const auto field : {&SandboxSpec::image, &SandboxSpec::image_id}) {
    Pairing named = pairing;
    named.spec.*field = "host";
    EXPECT_EQ(named.code(), "SandboxImageNotSupported");
    EXPECT_THAT(named.refusal()->message, HasSubstr("it takes nothing"));
    named.declared.image_forms = {ImageForm::host};
    EXPECT_EQ(named.code(), "nothing");
    named.spec.*field = "docker.io/library/python:3.12";
    EXPECT_EQ(named.code(), "SandboxImageNotSupported");
    named.declared.image_forms = {ImageForm::registry};
    EXPECT_EQ(named.code(), "nothing");
  }
}

struct Bound {
  Limit limit;
  std::string field;
  std::function<void(Resources&)> state;
};

const std::vector<Bound>& bounds() {
  static const std::vector<Bound> kBounds{
      {Limit::memory, "memory_bytes", [](Resources& all) { all.memory_bytes = stated(64 * kMiB); }},
      {Limit::pids, "pids", [](Resources& all) { all.pids = stated(64); }},
      {Limit::cpu, "cpu_millis", [](Resources& all) { all.cpu_millis = stated(500); }},
      {Limit::cpu, "cpu_seconds", [](Resources& all) { all.cpu_seconds = stated(9); }},
      {Limit::disk, "disk_bytes", [](Resources& all) { all.disk_bytes = stated(64 * kMiB); }},
      {Limit::disk, "disk_inodes", [](Resources& all) { all.disk_inodes = stated(512); }},
      {Limit::files, "open_files", [](Resources& all) { all.open_files = stated(512); }},
  };
  return kBounds;
}

TEST(RouterMatch, RefusesAStatedBoundThatCannotBeHeld) {
  for (const Bound& bound : bounds()) {
    Pairing pairing;
    bound.state(pairing.spec.resources);
    EXPECT_EQ(pairing.code(), "nothing") << bound.field;
    pairing.declared.enforceable_limits.erase(bound.limit);
    const auto refused = pairing.refusal();
    ASSERT_TRUE(refused) << bound.field;
    EXPECT_EQ(refused->code, "SandboxLimitNotEnforceable");
    EXPECT_THAT(refused->message, HasSubstr(bound.field));
  }
}

TEST(RouterMatch, RefusesStatedProcessorSecondsWhereOnlyTheShareIsHeld) {
  Pairing pairing;
  pairing.declared.cpu_seconds_enforceable = false;
  EXPECT_EQ(pairing.code(), "nothing");
  pairing.spec.resources.cpu_millis = stated(500);
  EXPECT_EQ(pairing.code(), "nothing");
  pairing.spec.resources.cpu_seconds = stated(9);
  EXPECT_EQ(pairing.code(), "SandboxLimitNotEnforceable");
  EXPECT_THAT(pairing.refusal()->message, HasSubstr("the share, not the seconds"));
  pairing.declared.enforceable_limits = {};
  EXPECT_THAT(pairing.refusal()->message, Not(HasSubstr("the share")));
  pairing.declared.enforceable_limits = {Limit::cpu};
  pairing.declared.cpu_seconds_enforceable = true;
  pairing.spec.resources.memory_bytes = stated(64 * kMiB);
  EXPECT_THAT(pairing.refusal()->message, Not(HasSubstr("the share")));
}

TEST(RouterMatch, ADefaultBoundThatCannotBeHeldRunsAndIsNamed) {
  BackendDeclarations declared = declared_as("linux", Isolation::vm);
  declared.enforceable_limits = {Limit::cpu, Limit::disk};
  const SandboxRouter router({backend_with(declared)});
  SandboxSpec spec = plain_spec();
  EXPECT_EQ(router.limits_not_held(spec),
            (std::set<Limit>{Limit::memory, Limit::pids, Limit::files}));
  EXPECT_EQ(SandboxRouter({backend_at("all", Isolation::vm)}).limits_not_held(spec),
            std::set<Limit>{});
}

}  // namespace
}  // namespace casemate
