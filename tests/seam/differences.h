#pragma once

// Where a backend may give something else than linux, and why.

#include <string>
#include <string_view>
#include <vector>

namespace casemate::seam {

// A difference in each of a backend's scenarios.
inline constexpr char kEveryScenario[] = "*";

struct Difference {
  std::string backend;
  std::string scenario;
  // A part of linux's transcript and what stands there instead; empty: the whole transcript.
  std::string of_linux;
  std::string instead;
  std::string reason;
};

const std::vector<Difference>& differences();

// Linux's transcript with this backend's differences put in. A difference whose part is not there
// any more makes it a text that no backend gives.
std::string expected_of(std::string_view backend, std::string_view scenario,
                        std::string transcript_of_linux);

}  // namespace casemate::seam
