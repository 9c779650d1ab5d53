#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/base/log.h"
#include "casemate/egress/gateway.h"
#include "casemate/images/store.h"
#include "casemate/local/local_backend.h"
#include "casemate/local/local_options.h"

namespace casemate {

// As it declares itself, and as a router and `casemate.toml` select it.
inline constexpr std::string_view kLinuxBackendName = "linux";

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct LinuxBackendOptions {
  // Where sandboxes are found by every process of this user; made with mode 700. Empty:
  // /run/casemate for root, else casemate in $XDG_RUNTIME_DIR or /run/user/UID, where one of them
  // is the user's and private, else /tmp/casemate-UID.
  std::string state_dir{};
  Log log{};
  ControlGroups control_groups = ControlGroups::where_possible;
  // Where images other than `host` and `dir:` are kept, and how they are brought there.
  images::ImageStoreOptions images{};
  std::optional<WarmPool> warm_pool{};
  // How calls of sandboxes in `allowlist` are served by this process; the list, the log and the
  // call's name are filled in. Nothing of it counts for the sandbox itself.
  EgressOptions egress{};
  // As in `LocalOptions`.
  std::size_t max_snapshots = kMaxSnapshots;
};

// Sandboxes out of the kernel's own parts, without a daemon or a setuid helper: namespaces, a root
// of read-only views of this machine's /usr or of an image, a quota file system, control groups, a
// user without capabilities, a system call filter. Rung `container`: the kernel is shared with the
// host.
//
// Needs Linux 5.12, and root or user namespaces for everybody. What it declares, how each limit is
// held and what it does not protect is written in README.md beside this header; how long a sandbox
// lives, at `LocalBackend`.
class LinuxBackend final : public local::LocalBackend {
 public:
  explicit LinuxBackend(LinuxBackendOptions options = {});
};

}  // namespace casemate
