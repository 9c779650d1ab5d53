#pragma once

#include <memory>
#include <vector>

#include "bench/table.h"
#include "casemate/core/backend.h"

namespace casemate::bench {

// CPython's call of a C++ function that returns its argument, from one thread and from eight (the
// time for all calls by their number), a sample being the median of 100 calls. The limits: 64 bytes
// to another process and back, nobody pinned to a processor; and the same from one thread of
// CPython that does nothing else. Beside them calls over the file transport, ten of one program.
// The processes and the sandbox are made by the first sample that needs them.
std::vector<Subject> host_tool_subjects(std::shared_ptr<SandboxBackend> backend);

}  // namespace casemate::bench
