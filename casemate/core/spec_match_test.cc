#include "casemate/core/spec_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// What each step refuses stands in policy/router_match_test.cc; here is what a backend relies on
// that asks for itself.
namespace casemate {
namespace {

using testing::HasSubstr;

BackendDeclarations declared() {
  BackendDeclarations declared;
  declared.name = "small";
  declared.isolation = Isolation::process;
  declared.egress_modes = {Egress::closed};
  declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out};
  declared.limits.files_in.max_files = 5;
  declared.limits.files_out.max_files = 7;
  return declared;
}

SandboxSpec needing(CapabilitySet capabilities, std::uint64_t files_in, std::uint64_t files_out) {
  SandboxSpec spec;
  spec.kind = "test";
  spec.requires_capabilities = std::move(capabilities);
  spec.files_in.max_files = files_in;
  spec.files_out.max_files = files_out;
  return spec;
}

std::string refusal_of(const SandboxSpec& spec) {
  const auto refused = match_declarations(spec, Isolation::process, declared());
  return refused ? std::string(refused->code) + ": " + refused->message : "";
}

TEST(SpecMatch, LimitsCountInTheDirectionsThatTheSpecCanUse) {
  const CapabilitySet in{Capability::exec, Capability::files_in};
  const CapabilitySet out{Capability::exec, Capability::files_out};
  EXPECT_EQ(refusal_of(needing(in, 5, 8)), "");
  EXPECT_EQ(refusal_of(needing(out, 6, 7)), "");
  EXPECT_THAT(refusal_of(needing(in, 6, 8)), HasSubstr("files_in than backend 'small' declares: "
                                                       "max_files 6 over 5"));
  EXPECT_THAT(refusal_of(needing(out, 6, 8)), HasSubstr("max_files 8 over 7"));
  EXPECT_EQ(refusal_of(needing({Capability::exec}, 6, 8)), "");
}

TEST(SpecMatch, OutputsThatArePromisedMakeADirectionUsable) {
  SandboxSpec spec = needing({Capability::exec}, 6, 8);
  spec.outputs_named_at_call_time = true;
  EXPECT_THAT(refusal_of(spec), HasSubstr("SandboxTransferLimitsNotPermitted"));
  spec.outputs_named_at_call_time = false;
  spec.declared_outputs = {{.path = "report.txt"}};
  EXPECT_THAT(refusal_of(spec), HasSubstr("SandboxTransferLimitsNotPermitted"));
}

TEST(SpecMatch, TheLowestFloorTakesEveryRungThatIsDeclared) {
  EXPECT_EQ(refusal_of(needing({}, 1, 1)), "");
  BackendDeclarations silent = declared();
  silent.isolation.reset();
  EXPECT_TRUE(match_declarations(needing({}, 1, 1), Isolation::process, silent));
}

}  // namespace
}  // namespace casemate
