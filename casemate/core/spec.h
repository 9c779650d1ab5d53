#pragma once

// What a workload asks for and who it is for. Immutable values by convention: a spec is built once
// and passed by const reference.

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/host_pattern.h"
#include "casemate/core/host_tools.h"
#include "casemate/core/limits.h"
#include "casemate/core/vocabulary.h"

namespace casemate {

// Whose sandbox it is. Content is unrestricted but non-empty; backends map it by a
// length-prefixed digest, so that two keys never share a name. Identity of a sandbox is
// `(key, spec.kind)`.
struct SandboxKey {
  std::string scope;
  std::string thread_id;
  std::string agent_dir;
  friend bool operator==(const SandboxKey&, const SandboxKey&) = default;
  friend auto operator<=>(const SandboxKey&, const SandboxKey&) = default;
};

// Throws `InvalidArgument` naming the part that is empty.
void check_key(const SandboxKey& key);

// A file a program is expected to leave. No rule applies at construction; `collect_outputs`
// applies them all.
struct DeclaredOutput {
  // Where the guest writes it, relative to the working directory of the collection.
  std::string path{};
  OutputDisposition disposition = OutputDisposition::land;
  std::optional<std::string> media_type{};
  bool required = true;
  // Spelling it lands under; absent means `path`.
  std::optional<std::string> name{};
  friend bool operator==(const DeclaredOutput&, const DeclaredOutput&) = default;
};

struct SandboxSpec {
  std::string kind{};
  // What it runs from: "host", "dir:PATH", a registry reference ... Absent: the backend's own.
  std::optional<std::string> image{};
  // A provider's own identifier; wins over `image` where a provider has such.
  std::optional<std::string> image_id{};
  std::vector<HostPattern> egress_allow{};
  // Absolute guest path under which calls get their directories.
  std::string work_dir = "/workspace";
  // Kept with the sandbox, as its maker gave them, under the backend's own prefix; cannot shadow
  // Casemate's. A sandbox is adopted whatever its labels are, and keeps them.
  std::map<std::string, std::string> labels{};
  CapabilitySet requires_capabilities = default_capabilities();
  // Absent: no opinion (the host's floor alone counts), which differs from `process`.
  std::optional<Isolation> min_isolation{};
  std::vector<DeclaredOutput> declared_outputs{};
  TransferLimits files_in{};
  TransferLimits files_out{};
  // Outputs may be named by the call instead of the spec.
  bool outputs_named_at_call_time = false;
  std::set<Identity> identities{};
  // What the host's registry was when it was sealed; absent: programs call nothing of the host's.
  std::optional<HostToolSurface> host_tools{};
  Egress egress = Egress::closed;
  std::optional<OsFamily> requires_os_family{};
  // How long the sandbox waits for its next user after the last process that held it let go of it,
  // if that is this one: the last user's wish counts. 0: ends then.
  std::chrono::milliseconds keep_idle{0};
  Resources resources{};
};

// The construction rules, applied by the router and by every backend before anything starts:
// non-empty kind; hosts only with egress `allowlist` (lists them otherwise), and not more than a
// list may have (egress.h); bounds that can work.
// Throws `InvalidArgument`.
void check_spec(const SandboxSpec& spec);

// Digest of what a sandbox is made *with*: image, egress rules, resources, work_dir and the guest
// build. Hex, 64 digits. Two specs with equal fingerprints can share a sandbox; labels, caps,
// outputs and keep_idle, which is each user's own, do not count.
std::string spec_fingerprint(const SandboxSpec& spec, std::string_view guest_build);

// `(key, kind)` as 24 hex digits of a SHA-256 over length-prefixed parts (`<len>:` + bytes).
std::string identity_digest(const SandboxKey& key, std::string_view kind);

// The form of an image reference: "host" -> host, "dir:..." -> dir, "oci:..." -> oci,
// "docker-archive:..." -> docker_archive, anything else -> registry. Throws `InvalidArgument` for
// an empty reference.
ImageForm image_form(std::string_view reference);

}  // namespace casemate
