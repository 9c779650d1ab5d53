#pragma once

// What host tool calls add to the files that a provider has to move, where they travel as files.

#include <cstdint>

#include "casemate/core/limits.h"
#include "casemate/core/spec.h"
#include "casemate/core/vocabulary.h"

namespace casemate {

// Bounds of what the file transport puts into a sandbox beside the answers: the Python module and
// the script that starts the program.
inline constexpr std::uint64_t kHostToolModuleBytes = 16 * kKiB;
inline constexpr std::uint64_t kHostToolLauncherBytes = 4 * kKiB;

// The limits that a spec asks of a backend with that transport. Over `files`, each call is a
// request that comes out and an answer that goes in: out come one request of a response's size for
// each call and one more, the output of the program (bounded by the responses' total) and three
// marks; in go the module, the launcher and the answers. Over a `channel`, and without host tools,
// they are the spec's own. Sums stop at the largest number.
SandboxLimits fold_host_tools(const SandboxSpec& spec, HostToolTransport transport);

}  // namespace casemate
