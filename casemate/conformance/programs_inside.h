#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/conformance/suite.h"
#include "casemate/core/control.h"
#include "casemate/core/sandbox.h"

namespace casemate::conformance {

// What the probes of a suite run inside, of a backend that has exec: programs of the image, looked
// up on its PATH. `egress` takes what there is of several and has a probe that says so.
std::span<const std::string_view> programs_inside(Suite suite);

// Those of them that are not there, sorted; `sh` alone where that is not. Empty also where the
// sandbox does not answer as a good one would: what is wrong with it is for the probes to find.
std::vector<std::string> lacking_programs(Call& call, const std::set<Suite>& suites,
                                          const CallControl& control);

}  // namespace casemate::conformance
