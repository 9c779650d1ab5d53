#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/backend.h"

namespace casemate::app {

// One line of `casemate doctor`.
struct Finding {
  enum class Status {
    ok,
    // It works and holds less than elsewhere.
    weaker,
    missing,
  };
  std::string name;
  Status status = Status::ok;
  // What was found; valid UTF-8.
  std::string found;
  // The command that mends it, empty where there is none or nothing to mend.
  std::string fix;
};

std::string_view to_string(Finding::Status status);

// Starts a sandbox of the backend, runs programs in it and ends it again.
std::vector<Finding> examine(SandboxBackend& backend);

}  // namespace casemate::app
