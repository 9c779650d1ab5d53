#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "casemate/core/vocabulary.h"

namespace casemate::conformance {

// A group of probes that stands or falls with one declared capability.
enum class Suite : std::uint8_t { files_in, files_out, files_delete, exec, egress };

// "files-in" and the like: how it is written on a command line and in records.
std::string_view to_string(Suite suite);
// Throws `InvalidArgument` naming the text and every suite.
Suite parse_suite(std::string_view text);

// In the order in which they are run.
std::span<const Suite> every_suite();

// What a backend declares if it takes part.
Capability gate_of(Suite suite);

}  // namespace casemate::conformance
