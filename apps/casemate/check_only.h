#pragma once

// What `--check` puts in the place of what would start or write something, so that a check takes
// the very road of a run and cannot drift from it.

#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

#include "casemate/core/backend.h"
#include "casemate/transfer/sink.h"

namespace casemate::app {

// Everything matched: the next step would have been to start a sandbox.
class WouldStart : public std::exception {
 public:
  const char* what() const noexcept override { return "a sandbox would be started"; }
};

// The same backends, but acquiring throws what theirs refuses before it looks whether it is to
// stop, and else `WouldStart`.
std::vector<std::shared_ptr<SandboxBackend>> start_nothing(
    const std::vector<std::shared_ptr<SandboxBackend>>& backends);

// A sink that takes nothing.
std::shared_ptr<OutputSink> sink_for_check();

}  // namespace casemate::app
