#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
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
inline constexpr std::string_view kOciBackendName = "oci";

struct OciBackendOptions {
  // The OCI runtime: an absolute path, or a name that is looked for in PATH and in the system's own
  // directories. Empty: the first of crun, runc and runsc that is there.
  std::string runtime{};
  // Where sandboxes are found by every process of this user, whatever their runtime; made with mode
  // 700. Empty: as of the linux backend, with "-oci" at the end.
  std::string state_dir{};
  Log log{};
  ControlGroups control_groups = ControlGroups::where_possible;
  // How long the runtime may take to start one container. Whoever waits for another meanwhile waits
  // so long at most.
  std::chrono::seconds start_patience{60};
  // Where images other than `host` and `dir:` are kept; the store of the linux backend serves both.
  images::ImageStoreOptions images{};
  std::optional<WarmPool> warm_pool{};
  // As in `LinuxBackendOptions`.
  EgressOptions egress{};
  // As in `LocalOptions`.
  std::size_t max_snapshots = kMaxSnapshots;
};

// Sandboxes that an OCI runtime makes, by its command line: no daemon. The container has its own
// namespaces of every kind, the user's among them, and a read-only root; its pid 1 is the guest
// program, which gives each call a scope of its own, as in the linux backend. Rung `container`: the
// kernel is shared with the host. With gVisor's runsc it is not: rung `hardened_container`, seen at
// each start, and fewer limits that hold.
//
// Needs what the linux backend needs, a runtime, and for an ordinary user a range of user ids
// (/etc/subuid); runsc needs root. What it declares, holds and does not protect is written in
// README.md beside this header; how long a sandbox lives, at `LocalBackend`. The runtime is asked
// for its version at the first acquire, and again when its file has changed.
class OciBackend final : public local::LocalBackend {
 public:
  explicit OciBackend(const OciBackendOptions& options = {});
};

}  // namespace casemate
