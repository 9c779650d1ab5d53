#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/casemate/refusal.h"
#include "casemate/conformance/conformance.h"
#include "casemate/core/backend.h"

namespace casemate::app {

// Runs the probes, in sandboxes from that image where one is named, and writes what they saw to
// standard output: a line each as they end and a sum, or at the end one JSON array. Returns 0 when
// all that ran passed, else 1. Throws as `run_conformance` does, and for an output that is closed
// or full.
int try_backend(std::shared_ptr<SandboxBackend> backend, conformance::ConformanceOptions options,
                OutputFormat format, const std::optional<std::string>& image = {});

}  // namespace casemate::app
