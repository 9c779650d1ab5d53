#include "casemate/core/backend.h"

#include <fmt/format.h>

#include "casemate/core/errors.h"

namespace casemate {

BackendProbe SandboxBackend::probe() { return {}; }

std::vector<SandboxRecord> SandboxBackend::list() { return {}; }

std::shared_ptr<Sandbox> SandboxBackend::attach(const SandboxKey& /*key*/, std::string_view kind,
                                                const CallControl& /*control*/) {
  throw NoSuchSandbox(
      fmt::format("no sandbox of kind '{}' is alive under this key: this backend keeps none to "
                  "attach to",
                  kind),
      "acquire one instead");
}

}  // namespace casemate
