#pragma once

// What a model reads before it calls. For kinds/codeact/ alone.

#include <string>

#include "casemate/core/spec.h"
#include "casemate/kinds/codeact/spec.h"

namespace casemate::codeact {

enum class SharedFiles : std::uint8_t { no, yes };

// Head, network, files, outputs, arguments, returns, in this order; the network and the caps are
// those of `spec`.
std::string tool_description(const SandboxSpec& spec, SharedFiles files, CodeactOutputs outputs);

// The JSON Schema of the same arguments.
std::string tool_parameters(SharedFiles files, CodeactOutputs outputs);

}  // namespace casemate::codeact
