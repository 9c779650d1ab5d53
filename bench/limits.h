#pragma once

#include <vector>

#include "bench/table.h"

namespace casemate::bench {

// The "limit" rows: each kind of work by the kernel's own calls, with nothing around them.
std::vector<Subject> limit_subjects();

}  // namespace casemate::bench
