#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "casemate/core/declarations.h"
#include "casemate/core/spec.h"
#include "casemate/local/control_groups.h"

namespace casemate::local {

// What a backend of that name and rung claims on a machine with that layout of control groups.
BackendDeclarations declare(std::string_view name, Isolation isolation,
                            const ControlGroupLayout& layout);

// Memory and swap of this machine; `kMaxBytes` where the kernel does not say.
std::uint64_t machine_memory_bytes() noexcept;

// Refuses, before anything is made, a spec that the backend cannot serve: also one that did not
// come through a router, by the router's own rules (`match_declarations`). Throws the refusals of
// `SandboxBackend::acquire` and of the router. `missing` says why a limit is not declared. A stated
// memory or disk of more than `machine_bytes` is a bound that nothing would ever meet.
void check_servable(const SandboxSpec& spec, const BackendDeclarations& declared,
                    const std::map<Limit, std::string>& missing = {},
                    std::uint64_t machine_bytes = machine_memory_bytes());

// The default bounds that are not held as they stand: by the declaration, because the kernel
// refused them (`failed`, with its reasons), or because a hard limit of this process, which it may
// not raise, bites before them. Throws `SandboxLimitNotEnforceable` for one that was stated.
std::set<Limit> settle_limits(const Resources& resources, const BackendDeclarations& declared,
                              const std::map<Limit, std::string>& failed);

}  // namespace casemate::local
