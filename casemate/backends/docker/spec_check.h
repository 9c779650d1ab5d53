#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "casemate/backends/docker/engine.h"
#include "casemate/core/declarations.h"
#include "casemate/core/spec.h"

namespace casemate::docker {

// What the backend claims of that engine; of none, what every engine holds.
BackendDeclarations declare(const std::optional<EngineFacts>& engine, Isolation isolation);

// Refuses, before anything is made, a spec that the backend cannot serve: by the router's own
// rules, a work directory that is something else in a container, a stated bound above what the
// engine's machine has.
void check_servable(const SandboxSpec& spec, const BackendDeclarations& declared,
                    const EngineFacts& engine);

}  // namespace casemate::docker
