#pragma once

#include <map>
#include <string>
#include <string_view>

#include "casemate/conformance/trial.h"

namespace casemate::conformance {

// Runs Python `text` in the trial's call and expects that it prints "done" and nothing else: it
// prints a line for whatever it finds wrong before that. `environment` is how it is told of the
// host.
void expect_done(Trial& trial, std::string_view step, std::string_view text,
                 std::map<std::string, std::string> environment = {});

}  // namespace casemate::conformance
