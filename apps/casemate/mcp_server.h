#pragma once

// From the options of `casemate mcp` to a server of `execute_code`.

#include <string>

#include "apps/casemate/mcp_options.h"
#include "apps/casemate/run_program.h"
#include "casemate/base/log.h"
#include "casemate/mcp/server.h"

namespace casemate::app {

// The tool, its store, sink and host tools, and what ends a conversation's sandboxes. Makes the
// directory for outputs, unless it refuses. Throws what the parts refuse.
mcp::ServerOptions make_mcp_server(const McpOptions& options, const Backends& backends,
                                   const Log& log);

// The same road for `--check`: nothing is made.
void check_mcp_server(const McpOptions& options, const Backends& backends, const Log& log);

// The backend that `--backend` names, or else the first that can serve and is available here, tried
// now: a server stays with it. Where none is, the one whose refusals say best what to mend.
std::string backend_to_serve(const McpOptions& options, const Backends& backends, const Log& log);

// One line for whoever started the server: the floor, and the backend that serves, which
// `options.sandbox.backend` names.
std::string in_force(const McpOptions& options);

}  // namespace casemate::app
