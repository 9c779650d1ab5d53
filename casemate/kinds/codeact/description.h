#pragma once

// What a model reads before it calls. For kinds/codeact/ alone.

#include <string>

#include "casemate/core/spec.h"
#include "casemate/host_tools/registry.h"
#include "casemate/kinds/codeact/spec.h"

namespace casemate::codeact {

enum class SharedFiles : std::uint8_t { no, yes };

// Head, network, host tools, files, outputs, arguments, returns, in this order; the network and the
// caps are those of `spec`. Without host tools, or with none in the registry, nothing speaks of
// them.
std::string tool_description(const SandboxSpec& spec, SharedFiles files, CodeactOutputs outputs,
                             const HostToolRegistry* host_tools = nullptr);

// The JSON Schema of the same arguments.
std::string tool_parameters(SharedFiles files, CodeactOutputs outputs);

}  // namespace casemate::codeact
