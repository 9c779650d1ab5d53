#pragma once

// Brings what a program wrote out of a sandbox: declared outputs only, each checked, counted, read
// and handed to the sink.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/errors.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"
#include "casemate/transfer/sink.h"

namespace casemate {

struct CollectOptions {
  // Where outputs land. May be null when none lands.
  OutputSink* sink = nullptr;
  // Outputs named by the call, after those of the spec. Only where the spec says
  // `outputs_named_at_call_time`.
  std::span<const DeclaredOutput> outputs = {};
  // Absolute guest path that every output's `path` is relative to; empty means `spec.work_dir`.
  // For a call: `Call::directory() + "/work"`. It does not count in the length of a name.
  std::string_view working_directory = {};
  CallControl control = {};
};

struct CollectReport {
  // In declaration order.
  std::vector<LandedArtifact> landed;
  // Landing names (for consumed outputs, paths) of the optional outputs that were not written.
  std::vector<std::string> missing;
};

// Collects in phases; each is finished for all outputs before the next begins:
//  0. outputs named by the call although the spec does not allow it: `InvalidArgument`;
//  1. an output lands and there is no sink: `SandboxOutputSinkRequired`;
//  2. names: `SandboxArtifactNameInvalid` for a path or landing name, consumed outputs included;
//     `SandboxArtifactNameCollision` among landing names. Until here the guest was not asked;
//  3. stat of every output in declaration order. Not there: `SandboxOutputMissing` when required,
//     else skipped and not counted; no regular file: `SandboxOutputNotRegular`; no size:
//     `SandboxOutputSizeUnknown`;
//  4. with each stat, the tally against `spec.files_out` (per file, count, total; equality passes):
//     `SandboxTransferCapExceeded`. Consumed outputs count and end here;
//  5. nothing lands: returns, the sink untouched;
//  6. read of every landing output, at most what its stat said and what a second tally leaves;
//     more is `SandboxTransferCapExceeded`, less is what the file holds by then;
//  7. `OutputSink::deliver_all`, whose exceptions propagate as they are.
// A refusal of phases 0 to 6 leaves the sink untouched. Failures of stat and read become the
// output family with the cause nested: `SandboxPathRefused` is `SandboxOutputNotConfined`;
// `SandboxFileError`, `SandboxTimeout` and `SandboxUnavailable` are `SandboxOutputUnreachable`.
// `SandboxCancelled`, `SandboxCapabilityNotSupported` and what is no refusal propagate.
// Host memory is bounded by `spec.files_out.max_total_bytes` whatever the guest does. No text
// repeats what the provider said.
CollectReport collect_outputs(GuestFiles& files, const SandboxSpec& spec,
                              const CollectOptions& options);

// The outputs a spec declares that land. Those named at call time are not known to it.
std::vector<DeclaredOutput> landing_outputs(const SandboxSpec& spec);

// True when a call on this spec may need a sink: a declared output lands, or outputs are named at
// call time.
bool spec_lands_artifacts(const SandboxSpec& spec);

// The one wording for a workload that lands outputs without a sink.
SandboxOutputSinkRequired missing_sink_refusal(std::string_view kind);

}  // namespace casemate
