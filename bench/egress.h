#pragma once

#include <memory>
#include <vector>

#include "bench/table.h"
#include "casemate/core/backend.h"

namespace casemate::bench {

// 256 MiB from a server of this process to a client in CPython, timed by the client from its
// connect to the end: on the loopback directly (the limit), by two socats in a row (two processes
// that copy, as a door and the host are), from the host's side of egress alone, and from a sandbox
// whose list has the server. What they need is made by the first sample that needs it.
std::vector<Subject> egress_subjects(std::shared_ptr<SandboxBackend> backend);

}  // namespace casemate::bench
