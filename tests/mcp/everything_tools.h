#pragma once

// The tools that the public conformance suites ask a server for by name, as far as a `Tool` can be
// one: it answers with text and landed files.

#include <vector>

#include "casemate/mcp/server.h"

namespace casemate::mcp::everything {

std::vector<ServedTool> tools();

}  // namespace casemate::mcp::everything
