#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/conformance/trial.h"

namespace casemate::conformance {

// Runs Python `text` in the call (by default the trial's) and expects that it prints "done" and
// nothing else: it prints a line for whatever it finds wrong before that. `environment` is how it
// is told of the host.
void expect_done(Call& call, const CallControl& control, std::string_view step,
                 std::string_view text, std::map<std::string, std::string> environment = {});
inline void expect_done(Trial& trial, std::string_view step, std::string_view text,
                        std::map<std::string, std::string> environment = {}) {
  expect_done(trial.call(), trial.control(), step, text, std::move(environment));
}

// As one variable can hold them: a JSON object.
std::string json_of(const std::map<std::string, std::string>& entries);

}  // namespace casemate::conformance
