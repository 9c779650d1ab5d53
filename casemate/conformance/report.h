#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/conformance/suite.h"

namespace casemate::conformance {

enum class Status : std::uint8_t { passed, failed, skipped };

std::string_view to_string(Status status);

// What came of one probe. All text is valid UTF-8 on one line; it may quote a guest or a provider.
struct ProbeResult {
  std::string probe{};
  Suite suite = Suite::exec;
  std::string sentence{};
  Status status = Status::passed;
  // Of a failure.
  std::string expected{};
  std::string seen{};
  // What was being done when it failed, or why it was skipped.
  std::string reason{};
  std::chrono::nanoseconds took{0};
};

struct Report {
  std::string backend{};
  // In the order in which they ran.
  std::vector<ProbeResult> results{};

  std::size_t count(Status status) const;
  // Something was tried, and nothing failed.
  bool passed() const;
  // Every failure with what was expected and what was seen, a few lines each; empty without one.
  std::string failures() const;
};

// One JSON array of records {"probe","suite","sentence","status","expected","seen","reason"}; what
// does not apply is null.
std::string to_json(const Report& report);

}  // namespace casemate::conformance
