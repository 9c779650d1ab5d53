#include "casemate/backends/linux/linux_backend.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "casemate/guest/agent/guest_program.h"
#include "casemate/local/engine.h"
#include "casemate/local/spec_check.h"
#include "casemate/local/state_directory.h"

namespace casemate {

namespace {

// The kernel's own parts, put together by the keeper.
class LinuxEngine final : public local::Engine {
 public:
  BackendDeclarations declare(const local::ControlGroupLayout& layout) const override {
    return local::declare(kLinuxBackendName, Isolation::container, layout);
  }
  std::string text() const override {
    utsname name{};
    if (uname(&name) < 0) return "linux";
    return fmt::format("linux {}", name.release);
  }
  std::string build() const override { return guest::guest_build_id(); }
};

local::LocalOptions local_options(LinuxBackendOptions options) {
  if (options.state_dir.empty()) {
    options.state_dir = local::default_state_directory(geteuid(), secure_getenv("XDG_RUNTIME_DIR"));
  }
  return {.state_dir = std::move(options.state_dir),
          .log = std::move(options.log),
          .control_groups = options.control_groups,
          .images = std::move(options.images),
          .warm_pool = std::move(options.warm_pool),
          .egress = std::move(options.egress),
          .max_snapshots = options.max_snapshots};
}

}  // namespace

LinuxBackend::LinuxBackend(LinuxBackendOptions options)
    : LocalBackend(std::make_shared<LinuxEngine>(), local_options(std::move(options))) {}

}  // namespace casemate
