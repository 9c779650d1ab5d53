#pragma once

// What the host says about a program beside what the program said.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/exec.h"
#include "casemate/core/spec.h"
#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

// How the program ended where it did not exit, and the limit that bit where it lived on, a sentence
// each. `resources` are those of its sandbox, absent where they are not known: then no number is
// named. Where `timeout` is absent, the time that it ran for is.
std::vector<std::string> outcome_notes(const ExecResult& result,
                                       const std::optional<Resources>& resources,
                                       const std::optional<std::chrono::nanoseconds>& timeout);

// Adds them to `run.notes`.
void append_outcome_notes(CodeactRun& run, const SandboxSpec& spec,
                          const std::optional<std::chrono::nanoseconds>& timeout);

}  // namespace casemate::codeact
