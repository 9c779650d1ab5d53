#pragma once

#include <memory>
#include <vector>

#include "bench/table.h"

namespace casemate::bench {

// Other sandboxes at the same work. One that is not on this machine, or cannot run here, is a row
// that says why. What they need (bundles, running containers) is made under /tmp and by their own
// tools, and removed with the last subject; what a killed process left, before the first.
std::vector<Subject> peer_subjects();

}  // namespace casemate::bench
