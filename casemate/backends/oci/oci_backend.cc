#include "casemate/backends/oci/oci_backend.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "casemate/backends/oci/oci_engine.h"
#include "casemate/local/state_directory.h"

namespace casemate {

namespace {

// Runtimes are often where ordinary users do not look.
std::string search_path() {
  const char* path = secure_getenv("PATH");
  return std::string(path == nullptr ? "" : path) +
         ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

std::string default_directory() {
  return local::default_state_directory(geteuid(), secure_getenv("XDG_RUNTIME_DIR")) + "-oci";
}

}  // namespace

OciBackend::OciBackend(const OciBackendOptions& options)
    : LocalBackend(
          std::make_shared<oci::OciEngine>(
              options.runtime, search_path(),
              options.state_dir.empty() ? default_directory() : options.state_dir,
              options.start_patience),
          {.state_dir = options.state_dir.empty() ? default_directory() : options.state_dir,
           .log = options.log,
           .control_groups = options.control_groups,
           .images = options.images,
           .warm_pool = options.warm_pool,
           .egress = options.egress,
           .max_snapshots = options.max_snapshots}) {}

}  // namespace casemate
