#pragma once

// Values of options, read strictly: what is not wholly a number of the stated kind, or lies outside
// the range, is refused with the range. Every function throws `InvalidArgument` that names the
// option, the text and what would be accepted.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/core/limits.h"

namespace casemate::app {

// A million calls take minutes; more is no longer one run of a program.
inline constexpr std::uint64_t kMaxHostToolCalls = 1'000'000;
inline constexpr std::uint64_t kMaxTransferFiles = 1'000'000;

// Bytes, or a number with K, M or G (of 1024, either case).
std::uint64_t parse_size(std::string_view option, std::string_view text, std::uint64_t least,
                         std::uint64_t most = kMaxBytes);

std::uint64_t parse_count(std::string_view option, std::string_view text, std::uint64_t least,
                          std::uint64_t most);

// Seconds, may be fractional (to the nanosecond): above 0, at most seven days.
std::chrono::nanoseconds parse_seconds(std::string_view option, std::string_view text);

// Processors, may be fractional (to the thousandth), as thousandths: `kMinCpuMillis` to
// `kMaxCpuMillis`.
std::uint64_t parse_cpus(std::string_view option, std::string_view text);

// `PER_FILE,TOTAL,COUNT`: two sizes and a number, none zero.
TransferLimits parse_transfer_limits(std::string_view option, std::string_view text);

// `NAME=VALUE`, split at the first `=`; the name is not empty, the value may be. `form` is how the
// option's help has it.
std::pair<std::string, std::string> parse_assignment(std::string_view option, std::string_view text,
                                                     std::string_view form = "NAME=VALUE");

// 16777216 as "16M"; a number that is no whole K, M or G as plain bytes.
std::string size_text(std::uint64_t bytes);

}  // namespace casemate::app
