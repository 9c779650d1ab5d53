#include "casemate/backends/microvm/microvm_backend.h"

#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "casemate/backends/microvm/microvm_engine.h"
#include "casemate/local/state_directory.h"

namespace casemate {
namespace {

local::LocalOptions local_options(const MicrovmBackendOptions& options) {
  local::LocalOptions chosen;
  chosen.state_dir =
      options.state_dir.empty()
          ? local::default_state_directory(geteuid(), secure_getenv("XDG_RUNTIME_DIR")) + "-microvm"
          : options.state_dir;
  chosen.log = options.log;
  chosen.control_groups = options.control_groups;
  chosen.images = options.images;
  chosen.egress = options.egress;
  chosen.max_snapshots = options.max_snapshots;
  return chosen;
}

}  // namespace

MicrovmBackend::MicrovmBackend(const MicrovmBackendOptions& options)
    : LocalBackend(std::make_shared<microvm::MicrovmEngine>(options), local_options(options)) {}

}  // namespace casemate
