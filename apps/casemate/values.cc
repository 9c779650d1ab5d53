#include "apps/casemate/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text,
                         std::string_view accepted) {
  throw InvalidArgument(fmt::format("{} cannot be '{}'", option, escape_for_display(text)),
                        fmt::format("give {}", accepted));
}

// The whole text as decimal digits; absent for anything else, overflow included.
std::optional<std::uint64_t> whole_number(std::string_view digits) {
  std::uint64_t number = 0;
  const auto [stopped, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc{} || stopped != digits.end()) return std::nullopt;
  return number;
}

// "12", "0.5", "1.": digits with at most `places` behind the point, as a multiple of 10^-places.
std::optional<std::uint64_t> fixed_point(std::string_view text, std::size_t places) {
  const auto point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string fraction(point == text.npos ? "" : text.substr(point + 1));
  if (fraction.size() > places || (whole.empty() && fraction.empty())) return std::nullopt;
  fraction.resize(places, '0');
  const auto units = whole_number(whole.empty() ? "0" : whole);
  const auto parts = whole_number(fraction);
  std::uint64_t scale = 1;
  for (std::size_t i = 0; i < places; ++i) scale *= 10;
  std::uint64_t scaled = 0;
  if (!units || !parts || __builtin_mul_overflow(*units, scale, &scaled)) return std::nullopt;
  if (__builtin_add_overflow(scaled, *parts, &scaled)) return std::nullopt;
  return scaled;
}

std::uint64_t unit_of(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K':
      return kKiB;
    case 'm':
    case 'M':
      return kMiB;
    case 'g':
    case 'G':
      return kGiB;
    default:
      return 1;
  }
}

}  // namespace

std::uint64_t parse_size(std::string_view option, std::string_view text, std::uint64_t least,
                         std::uint64_t most) {
  const std::uint64_t unit = text.empty() ? 1 : unit_of(text.back());
  const auto number = whole_number(unit == 1 ? text : text.substr(0, text.size() - 1));
  std::uint64_t bytes = 0;
  if (!number || __builtin_mul_overflow(*number, unit, &bytes) || bytes < least || bytes > most) {
    refuse(option, text,
           fmt::format("a size in bytes or with K, M or G, from {} to {}", size_text(least),
                       size_text(most)));
  }
  return bytes;
}

std::uint64_t parse_count(std::string_view option, std::string_view text, std::uint64_t least,
                          std::uint64_t most) {
  const auto number = whole_number(text);
  if (!number || *number < least || *number > most) {
    refuse(option, text, fmt::format("a whole number from {} to {}", least, most));
  }
  return *number;
}

std::chrono::nanoseconds parse_seconds(std::string_view option, std::string_view text) {
  constexpr std::uint64_t kMost = kMaxTimeoutSeconds * 1'000'000'000;
  const auto nanoseconds = fixed_point(text, 9);
  if (!nanoseconds || *nanoseconds == 0 || *nanoseconds > kMost) {
    refuse(option, text,
           fmt::format("seconds above 0 and at most {} (7 days)", kMaxTimeoutSeconds));
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*nanoseconds));
}

std::uint64_t parse_cpus(std::string_view option, std::string_view text) {
  const auto millis = fixed_point(text, 3);
  if (!millis || *millis < kMinCpuMillis || *millis > kMaxCpuMillis) {
    refuse(option, text,
           fmt::format("a number of processors from {:g} to {:g}",
                       static_cast<double>(kMinCpuMillis) / 1000,
                       static_cast<double>(kMaxCpuMillis) / 1000));
  }
  return *millis;
}

TransferLimits parse_transfer_limits(std::string_view option, std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    parts.push_back(rest.substr(0, comma));
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (parts.size() != 3) refuse(option, text, "PER_FILE,TOTAL,COUNT, for example 8M,32M,64");
  const std::string name(option);
  return {parse_size(name + " PER_FILE", parts[0], 1), parse_size(name + " TOTAL", parts[1], 1),
          parse_count(name + " COUNT", parts[2], 1, kMaxTransferFiles)};
}

std::pair<std::string, std::string> parse_assignment(std::string_view option, std::string_view text,
                                                     std::string_view form) {
  const auto equals = text.find('=');
  if (equals == text.npos || equals == 0) refuse(option, text, form);
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

std::string size_text(std::uint64_t bytes) {
  if (bytes != 0 && bytes % kGiB == 0) return fmt::format("{}G", bytes / kGiB);
  if (bytes != 0 && bytes % kMiB == 0) return fmt::format("{}M", bytes / kMiB);
  if (bytes != 0 && bytes % kKiB == 0) return fmt::format("{}K", bytes / kKiB);
  return fmt::format("{}", bytes);
}

}  // namespace casemate::app
