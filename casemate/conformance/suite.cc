#include "casemate/conformance/suite.h"

#include <fmt/format.h>

#include <array>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::conformance {
namespace {

struct Row {
  Suite suite;
  std::string_view name;
  Capability gate;
};

// exec comes last of those that share a sandbox: its last probe may cost the sandbox.
constexpr std::array kRows{
    Row{Suite::files_in, "files-in", Capability::files_in},
    Row{Suite::files_out, "files-out", Capability::files_out},
    Row{Suite::files_delete, "files-delete", Capability::files_delete},
    Row{Suite::exec, "exec", Capability::exec},
    Row{Suite::egress, "egress", Capability::exec},
};

}  // namespace

std::string_view to_string(Suite suite) {
  for (const Row& row : kRows) {
    if (row.suite == suite) return row.name;
  }
  return "unknown";
}

Suite parse_suite(std::string_view text) {
  std::string names;
  for (const Row& row : kRows) {
    if (row.name == text) return row.suite;
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  throw InvalidArgument(fmt::format("there is no suite '{}'", escape_for_display(text)),
                        fmt::format("the suites are {}", names));
}

std::span<const Suite> every_suite() {
  static constexpr auto kSuites = [] {
    std::array<Suite, kRows.size()> suites{};
    for (std::size_t i = 0; i < kRows.size(); ++i) suites[i] = kRows[i].suite;
    return suites;
  }();
  return kSuites;
}

Capability gate_of(Suite suite) {
  for (const Row& row : kRows) {
    if (row.suite == suite) return row.gate;
  }
  return Capability::exec;
}

}  // namespace casemate::conformance
