#pragma once

// What is checked of a request before a sandbox is asked for, and the files that go in. For
// kinds/codeact/ alone.

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

struct SharedFile {
  std::string name;
  std::string content;
};

// Above 0 and at most `kMaxTimeoutSeconds`, or absent. Throws `InvalidArgument`.
void check_timeout(const std::optional<std::chrono::nanoseconds>& timeout);

// The timeout, and whether wiring and request fit each other.
void check_wiring(const CodeactWiring& wiring, const CodeactRequest& request);

// Names of outputs, whoever gave them: at most `limits.max_files`; each valid as it is and as the
// sink spells it; none twice; not the list itself under `manifest`.
void check_output_names(std::span<const std::string> names, const TransferLimits& limits,
                        CodeactOutputs outputs, const OutputSink& sink);

// Holds program and files against `files_in` and the store, and reads the files.
std::vector<SharedFile> read_shared_files(const CodeactWiring& wiring,
                                          const CodeactRequest& request,
                                          const CallControl& control);

}  // namespace casemate::codeact
