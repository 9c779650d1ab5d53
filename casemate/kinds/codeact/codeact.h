#pragma once

// The tool with which an agent runs programs it writes.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/host_tools/registry.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/policy/router.h"
#include "casemate/tool/caller_context.h"
#include "casemate/tool/guest_call.h"
#include "casemate/tool/tool.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"

namespace casemate {

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct CodeactToolOptions {
  // What a program may ask to have shared. With one, the model sees `files`; null: it does not.
  // A store that is not a directory store must not show what the sink lands: see `refuse_overlap`.
  std::shared_ptr<const FileStore> file_store{};
  // Where outputs land; required by, and refused without, an `outputs` mode.
  std::shared_ptr<OutputSink> output_sink{};
  // Allows a directory store and a file-system sink that overlap.
  std::optional<UnsafeSharedStore> unsafe_shared_store{};
  CodeactOutputs outputs = CodeactOutputs::none;
  // Functions of the host that programs may call; null and an empty one are the same. Is sealed
  // where a sandbox is configured.
  std::shared_ptr<HostToolRegistry> host_tools{};
  // The host's label for the most confidential data that may leave by what this tool can carry out.
  // Without it nothing is declared of that, also where a host tool has a sink or no declaration: a
  // framework that reads declarations then sets no cap.
  std::optional<std::string> outbound_max_confidentiality{};
  std::optional<std::string> image{};
  std::optional<std::string> image_id{};
  std::chrono::nanoseconds exec_timeout = kDefaultCodeactTimeout;
  // Hosts that programs may reach; none: no network. The model is told them.
  std::vector<HostPattern> egress_allow{};
  TransferLimits files_in = kDefaultTransferLimits;
  TransferLimits files_out = kDefaultCodeactFilesOut;
  // A result carries at most so many bytes of each stream, head and tail.
  std::uint64_t capture_bytes = kDefaultCaptureBytes;
  Resources resources{};
  std::map<std::string, std::string> labels{};
  // For programs, beside the sandbox's base set: the host's, never a model's.
  std::map<std::string, std::string> environment{};
  // How long a sandbox waits for its next user; see `SandboxSpec::keep_idle`.
  std::chrono::milliseconds keep_idle{0};
  ReclaimCallback on_reclaim_failure{};
  // What no model and no program is told: why nothing could be run, what a host tool threw. Without
  // one it is lost: the logs of the router and of the backend do not have it.
  Log log{};
};

// `[execute_code]`, or nothing where `router` has no backend. Where it has one, refuses in this
// order: a timeout that is not above 0 or over 7 days; caps under which no program, no output or no
// list could pass; a sink without an outputs mode; a store and sink that overlap (all
// `InvalidArgument`); then what `sandboxed_tool` refuses, a missing sink among it.
// The tool asks for approval when a host tool acts in a user's name, and only then. It does not
// declare a source integrity: what a program prints is as trustworthy as what it read. Where a host
// tool carries something out, or did not say, `outbound_max_confidentiality` caps what may go in.
std::vector<Tool> make_codeact_tools(const SandboxRouter& router, std::string agent_dir,
                                     CallerContext context, CodeactToolOptions options = {});

}  // namespace casemate
