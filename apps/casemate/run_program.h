#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/casemate/run_options.h"
#include "casemate/base/log.h"
#include "casemate/core/backend.h"
#include "casemate/policy/router.h"

namespace casemate::app {

using Backends = std::vector<std::shared_ptr<SandboxBackend>>;

// The backend that `--backend` names, or else the first that meets the floor; where none does, the
// first.
std::string backend_of(const RunOptions& options, const Backends& backends);

// The router over these, with the options' floor, denials and choice.
SandboxRouter make_router(const RunOptions& options, Backends backends, const Log& log);

// Throws `InvalidArgument`, naming the nearest, when `--backend` names none of these.
void refuse_unknown_backend(const RunOptions& options, const Backends& backends);

// Runs (or, with `options.check`, only matches) a program by the same road as the tool, and writes
// what the surface says: its streams or the JSON object to standard output and error, and what
// became of its outputs to standard error. Returns the exit status. Refusals before the program
// ran, and a provider that failed under it, are thrown, and so are `OutputClosed` and
// `OutputFailed`; a stop by signal is a status.
int run_program(const RunOptions& options, const Backends& backends, const Log& log);

}  // namespace casemate::app
