#include "casemate/core/host_tool_fold.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string_view>

#include "casemate/backends/in_process/backend.h"
#include "casemate/policy/router.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

SandboxSpec spec_with(HostToolSurface surface) {
  SandboxSpec spec;
  spec.kind = "k";
  spec.requires_capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                                Capability::host_tools};
  spec.host_tools = surface;
  return spec;
}

SandboxRouter router_with(HostToolTransport transport, std::uint64_t ceiling) {
  BackendDeclarations declared = in_process::default_declarations();
  declared.capabilities = {Capability::exec, Capability::files_in, Capability::files_out,
                           Capability::host_tools};
  declared.host_tool_transport = transport;
  declared.limits.files_in = {ceiling, ceiling, 1000};
  declared.limits.files_out = {ceiling, ceiling, 1000};
  return SandboxRouter({std::make_shared<in_process::InProcessSandboxBackend>(
                           nullptr, in_process::InProcessBackendOptions{.declarations = declared})},
                       {.min_isolation = Isolation::process});
}

const HostToolSurface kGenerous{32, kDefaultTransferLimits};
const HostToolSurface kModest{32, {64 * kKiB, kMiB, 64}};

TEST(HostToolFold, RefusesThirtyTwoCallsOfEightMebibytesWithTheFigure) {
  expect_refusal<SandboxTransferLimitsNotPermitted>(
      [] {
        router_with(HostToolTransport::files, 128 * kMiB).ensure_can_serve(spec_with(kGenerous));
      },
      {"files_out", "343932928"});
}

TEST(HostToolFold, AdmitsThirtyTwoModestCalls) {
  EXPECT_EQ(fold_host_tools(spec_with(kModest), HostToolTransport::files).files_out.max_total_bytes,
            33 * 64 * kKiB + kMiB + 32 * kMiB);
  EXPECT_NO_THROW(
      router_with(HostToolTransport::files, 128 * kMiB).ensure_can_serve(spec_with(kModest)));
}

TEST(HostToolFold, CountsEveryLegOfFiles) {
  const SandboxLimits asked = fold_host_tools(spec_with(kModest), HostToolTransport::files);
  EXPECT_EQ(asked.files_out.max_files, 64U + 32 + 3);
  EXPECT_EQ(asked.files_out.max_bytes_per_file, 8 * kMiB);
  EXPECT_EQ(asked.files_in.max_files, 64U + 32 + 2);
  EXPECT_EQ(asked.files_in.max_total_bytes,
            32 * kMiB + kMiB + kHostToolModuleBytes + kHostToolLauncherBytes);
  EXPECT_EQ(asked.files_in.max_bytes_per_file, 8 * kMiB);
  SandboxSpec small = spec_with({1, {20, 30, 1}});
  small.files_in = small.files_out = {10, 10, 1};
  const SandboxLimits folded = fold_host_tools(small, HostToolTransport::files);
  EXPECT_EQ(folded.files_out, (TransferLimits{30, 2 * 20 + 30 + 10, 5}));
  EXPECT_EQ(folded.files_in.max_bytes_per_file, kHostToolModuleBytes);
}

TEST(HostToolFold, OneFileMayBeAsLargeAsOneAnswer) {
  SandboxSpec spec = spec_with({1, {kGiB, kMiB, 1}});
  spec.files_in = spec.files_out = {10, 10, 1};
  const SandboxLimits folded = fold_host_tools(spec, HostToolTransport::files);
  EXPECT_EQ(folded.files_out.max_bytes_per_file, kGiB);
  EXPECT_EQ(folded.files_in.max_bytes_per_file, kGiB);
}

TEST(HostToolFold, FoldsNothingOnAChannelOrWithoutHostTools) {
  const SandboxSpec spec = spec_with(kGenerous);
  EXPECT_EQ(fold_host_tools(spec, HostToolTransport::channel),
            (SandboxLimits{spec.files_in, spec.files_out}));
  EXPECT_NO_THROW(router_with(HostToolTransport::channel, 32 * kMiB).ensure_can_serve(spec));
  SandboxSpec without = spec;
  without.host_tools.reset();
  EXPECT_EQ(fold_host_tools(without, HostToolTransport::files),
            (SandboxLimits{spec.files_in, spec.files_out}));
}

TEST(HostToolFold, StopsAtTheLargestNumber) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const SandboxLimits asked =
      fold_host_tools(spec_with({kMost, {kMost, kMost, kMost}}), HostToolTransport::files);
  EXPECT_EQ(asked.files_out, (TransferLimits{kMost, kMost, kMost}));
  EXPECT_EQ(asked.files_in, (TransferLimits{kMost, kMost, kMost}));
}

TEST(HostToolFold, ABackendWithoutATransportCarriesNoCalls) {
  expect_refusal<SandboxCapabilityNotSupported>(
      [] { router_with(HostToolTransport::none, 128 * kMiB).ensure_can_serve(spec_with(kModest)); },
      {"host_tools", "no transport"});
}

}  // namespace
}  // namespace casemate
