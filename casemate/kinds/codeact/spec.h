#pragma once

// What CodeAct asks of a sandbox.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/host_pattern.h"
#include "casemate/core/limits.h"
#include "casemate/core/spec.h"
#include "casemate/host_tools/registry.h"

namespace casemate {

// The kind's name: second half of a sandbox's identity.
inline constexpr std::string_view kCodeactKind = "codeact";
// The one tool.
inline constexpr std::string_view kExecuteCodeToolName = "execute_code";

// How a program hands files back: not at all, by names that the call gives, or by a list that the
// program writes.
enum class CodeactOutputs : std::uint8_t { none, declared, manifest };

// The wire spelling, a string literal.
std::string_view to_string(CodeactOutputs value);
// Parses it exactly; throws `InvalidArgument` with the valid spellings.
CodeactOutputs parse_codeact_outputs(std::string_view text);

// The list that a program writes under `CodeactOutputs::manifest`; the only reserved name, and only
// there.
inline constexpr std::string_view kManifestName = "outputs.json";
// Bytes of a list that names one file of one letter, `{"outputs":[{"path":"a"}]}`: caps below this
// could never let a file out.
inline constexpr std::uint64_t kMinManifestBytes = 26;
// A longer list is refused whatever the caps allow.
inline constexpr std::uint64_t kMaxManifestBytes = 64 * kKiB;

// Outputs: 8 MiB a file, 32 MiB, 8 files. The program counts among the files that go in.
inline constexpr TransferLimits kDefaultCodeactFilesOut{8 * kMiB, 32 * kMiB, 8};

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct CodeactSpecOptions {
  // Absent: the backend's own.
  std::optional<std::string> image{};
  std::optional<std::string> image_id{};
  CodeactOutputs outputs = CodeactOutputs::none;
  // Functions of the host that programs may call; null and an empty one are the same. Is sealed.
  std::shared_ptr<HostToolRegistry> host_tools{};
  TransferLimits files_in = kDefaultTransferLimits;
  TransferLimits files_out = kDefaultCodeactFilesOut;
  // Hosts that programs may reach; none: egress is closed. One that is listed twice counts once.
  std::vector<HostPattern> egress_allow{};
  Resources resources{};
  std::map<std::string, std::string> labels{};
  // How long a sandbox waits for its next user; see `SandboxSpec::keep_idle`.
  std::chrono::milliseconds keep_idle{0};
};

// Kind `codeact`, requires exec and files_in, with outputs files_out too, with host tools
// host_tools and files_out; egress allowlist where hosts are listed, else closed; no floor and no
// OS family of its own. Never files_list, never files_delete. A host holds it against its wiring
// with `router.ensure_can_serve(codeact_sandbox_spec(...))`. Throws nothing itself.
SandboxSpec codeact_sandbox_spec(const CodeactSpecOptions& options = {});

}  // namespace casemate
