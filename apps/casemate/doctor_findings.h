#pragma once

#include <memory>
#include <span>
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
    // A backend whose engine is not here, and need not be: another one works.
    absent,
  };
  std::string name;
  Status status = Status::ok;
  // What was found; valid UTF-8.
  std::string found;
  // The command that mends it, empty where there is none or nothing to mend.
  std::string fix;
  // `is_broken`.
  bool broken = false;
  // `BackendProbe::one_user_id` of a backend.
  std::string one_user_id{};
};

std::string_view to_string(Finding::Status status);

// Whether a backend with that probe is to be mended, also where another one works, and not merely
// absent: an engine of its own does not work, or its state directory cannot be used. May try it.
bool is_broken(SandboxBackend& backend, const BackendProbe& probe);

// Starts a sandbox of the backend, runs programs in it and ends it again. The first finding is
// whether it works.
std::vector<Finding> examine(SandboxBackend& backend);
// Whose user ids sandboxes have, by what the first finding of a backend that has some says; empty
// there: by what this machine gives this user.
Finding examine_user_ids(std::span<const Finding> findings);
// The same of each.
std::vector<Finding> examine_all(std::span<const std::shared_ptr<SandboxBackend>> backends);

}  // namespace casemate::app
