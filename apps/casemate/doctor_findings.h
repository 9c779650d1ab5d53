#pragma once

#include <map>
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

// Prints, inside a sandbox, what `lacking_evidence` reads.
extern const char kShowBoundary[];

// What of the boundary that its rung promises a program did not see: `seen` is what kShowBoundary
// printed, `ours` the namespaces of this process by kind ("net" -> "net:[4026531840]"). Empty when
// all is there. This is what a program can see of its boundary, not what it can do to it: for that
// there is `casemate conformance`.
std::vector<std::string> lacking_evidence(std::string_view seen,
                                          const std::map<std::string, std::string>& ours);

// The namespaces of this process, of those kinds that a container has of its own.
std::map<std::string, std::string> own_namespaces();

// Starts a sandbox of the backend, runs programs in it and ends it again.
std::vector<Finding> examine(SandboxBackend& backend);

}  // namespace casemate::app
