#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/casemate/run_options.h"
#include "casemate/base/log.h"
#include "casemate/core/backend.h"
#include "casemate/core/spec.h"
#include "casemate/host_tools/registry.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/policy/router.h"

namespace casemate::app {

using Backends = std::vector<std::shared_ptr<SandboxBackend>>;

// What the options ask of a sandbox. Seals `host_tools`.
SandboxSpec make_spec(const RunOptions& options, CodeactOutputs outputs,
                      std::shared_ptr<HostToolRegistry> host_tools);

// The backend that `--backend` names, or else the first that says that it can serve `spec` and
// meets the floor; where none does, the first that meets the floor, or else the first. Whether it
// is available is not asked.
std::string backend_of(const RunOptions& options, const Backends& backends,
                       const SandboxSpec& spec);

// A backend, and what is to be said of those before it that are to be mended (`is_broken`), a
// sentence each.
struct AvailableBackend {
  std::string name;
  std::vector<std::string> passed_over;
};

// The first that can serve `spec`, meets the floor, and is available here: each is tried in turn,
// which may start something small. Nothing when there is none; `log` has why.
std::optional<AvailableBackend> first_available(const RunOptions& options, const Backends& backends,
                                                const SandboxSpec& spec, const Log& log);

// The router over `backend_of` alone, with the options' floor and denials.
SandboxRouter make_router(const RunOptions& options, const Backends& backends,
                          const SandboxSpec& spec, const Log& log);

// Throws `InvalidArgument`, naming the nearest, when `--backend` names none of these.
void refuse_unknown_backend(const RunOptions& options, const Backends& backends);

// Runs (or, with `options.check`, only matches) a program by the same road as the tool, and writes
// what the surface says: its streams or the JSON object to standard output and error, and what
// became of its outputs to standard error. Without `--backend`, a first choice that is not
// available here gives way to the first that is. Returns the exit status. Refusals before the
// program ran, and a provider that failed under it, are thrown, and so are `OutputClosed` and
// `OutputFailed`; a stop by signal is a status.
int run_program(const RunOptions& options, const Backends& backends, const Log& log);

}  // namespace casemate::app
