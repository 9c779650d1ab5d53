#include "casemate/conformance/suite.h"

#include <fmt/format.h>

#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::conformance {
std::string_view to_string(Suite suite) {
  for (const SuiteTraits& row : kSuites) {
    if (row.suite == suite) return row.name;
  }
  return "unknown";
}

Suite parse_suite(std::string_view text) {
  std::string names;
  for (const SuiteTraits& row : kSuites) {
    if (row.name == text) return row.suite;
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  throw InvalidArgument(fmt::format("there is no suite '{}'", escape_for_display(text)),
                        fmt::format("the suites are {}", names));
}

std::optional<Capability> gate_of(Suite suite) {
  for (const SuiteTraits& row : kSuites) {
    if (row.suite == suite) return row.gate;
  }
  return std::nullopt;
}

}  // namespace casemate::conformance
