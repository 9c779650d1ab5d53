#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "casemate/core/vocabulary.h"

namespace casemate::conformance {

// A group of probes about one thing that is declared, mostly a capability.
enum class Suite : std::uint8_t {
  files_in,
  files_out,
  files_delete,
  exec,
  egress,
  host_tools,
  snapshot,
  usability,
  rung,
  isolation,
};

struct SuiteTraits {
  Suite suite;
  // How it is written on a command line and in records.
  std::string_view name;
  // What a backend declares if it takes part; absent: every backend does. `egress` takes an egress
  // mode that is enforced, too.
  std::optional<Capability> gate;
};

// In the order in which they are run: exec after the files, because its last probe may cost the
// sandbox.
inline constexpr std::array kSuites{
    SuiteTraits{Suite::files_in, "files-in", Capability::files_in},
    SuiteTraits{Suite::files_out, "files-out", Capability::files_out},
    SuiteTraits{Suite::files_delete, "files-delete", Capability::files_delete},
    SuiteTraits{Suite::exec, "exec", Capability::exec},
    SuiteTraits{Suite::egress, "egress", Capability::exec},
    SuiteTraits{Suite::host_tools, "host-tools", Capability::host_tools},
    SuiteTraits{Suite::snapshot, "snapshot", Capability::snapshot},
    SuiteTraits{Suite::usability, "usability", Capability::exec},
    SuiteTraits{Suite::rung, "rung", std::nullopt},
    SuiteTraits{Suite::isolation, "isolation", Capability::exec},
};

std::string_view to_string(Suite suite);
// Throws `InvalidArgument` naming the text and every suite.
Suite parse_suite(std::string_view text);
std::optional<Capability> gate_of(Suite suite);

}  // namespace casemate::conformance
