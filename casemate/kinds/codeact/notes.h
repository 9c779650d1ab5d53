#pragma once

// What the host says about a program beside what the program said. For kinds/codeact/ alone.

#include <chrono>
#include <optional>

#include "casemate/core/spec.h"
#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

// Adds to `run.notes` how the program ended where it did not exit, and the limit that bit where it
// lived on.
void append_outcome_notes(CodeactRun& run, const SandboxSpec& spec,
                          const std::optional<std::chrono::nanoseconds>& timeout);

}  // namespace casemate::codeact
