#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/backends/microvm/accelerator.h"
#include "casemate/backends/microvm/machine_arguments.h"
#include "casemate/base/log.h"
#include "casemate/egress/gateway.h"
#include "casemate/images/store.h"
#include "casemate/local/local_backend.h"

namespace casemate {

// As it declares itself, and as a router and `casemate.toml` select it.
inline constexpr std::string_view kMicrovmBackendName = "microvm";

// Every field has an initialiser, so that a host that names only some is not warned of the rest.
struct MicrovmBackendOptions {
  // Where sandboxes are found by every process of this user; made with mode 700. Empty: beside the
  // linux backend's, with "-microvm" at its end.
  std::string state_dir{};
  // Where images are kept, packed ones and saved machines too (`packed`, `machines`, `boot` in it).
  images::ImageStoreOptions images{};
  // The hypervisor: a name looked up on PATH, or a path.
  std::string qemu = "qemu-system-x86_64";
  std::string mksquashfs = "mksquashfs";
  // The kernel for machines is looked for below this, as packages have it (boot/vmlinuz-*,
  // lib/modules/*). Empty: `kernel` where images are kept, then this machine's own root.
  std::string kernel_root{};
  microvm::MachineType machine = microvm::MachineType::microvm;
  // Absent: the processor's virtualisation where it can be used, else emulation.
  std::optional<microvm::Accelerator> accelerator{};
  // Whether a machine that is ready is saved, so that others are restored from it: they start five
  // times faster. Each kind of machine takes some 100 MiB where images are kept.
  bool saves_machines = true;
  Log log{};
  // Whether control groups of this machine bound each hypervisor, where this user may make them.
  ControlGroups control_groups = ControlGroups::where_possible;
  // How calls of sandboxes in `allowlist` are served by this process; the list, the log and the
  // call's name are filled in.
  EgressOptions egress{};
  // As in `LocalOptions`.
  std::size_t max_snapshots = kMaxSnapshots;
};

// Sandboxes that are virtual machines: QEMU, a distribution's kernel, an image as a read-only disk,
// and inside what the linux backend is on a machine of its own. Rung `microvm` (`vm` on `q35`)
// where a processor's virtualisation draws the boundary; under emulation QEMU's program code does,
// and the rung is `hardened_container`.
//
// Needs QEMU, mksquashfs and a kernel; `casemate doctor` says what is missing. What it declares,
// how each limit is held and what it does not protect is written in README.md beside this header;
// how long a sandbox lives, at `LocalBackend`.
class MicrovmBackend final : public local::LocalBackend {
 public:
  explicit MicrovmBackend(const MicrovmBackendOptions& options = {});
};

}  // namespace casemate
