#include "casemate/guest/agent/cpu_budget_meter.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <utility>

#include "casemate/sys/error.h"

namespace casemate::guest {
namespace {

constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(5);
constexpr std::string_view kUsage = "usage_usec ";

std::uint64_t processors() {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<std::uint64_t>(online) : 1;
}

}  // namespace

CpuBudgetMeter::CpuBudgetMeter(sys::UniqueFd counter, std::uint64_t limit_ns,
                               std::uint64_t share_millis)
    : counter_(std::move(counter)),
      limit_ns_(limit_ns),
      share_millis_(share_millis != 0 ? share_millis : 1000 * processors()) {}

std::optional<std::chrono::nanoseconds> CpuBudgetMeter::pause() const {
  std::array<char, 4096> text;
  const ssize_t got = pread(counter_.get(), text.data(), text.size(), 0);
  if (got < 0) sys::throw_errno("reading a counter of processor time");
  const auto used = parse_cpu_counter({text.data(), static_cast<std::size_t>(got)});
  if (!used) sys::throw_error(EINVAL, "a counter of processor time");
  return pause_for(*used, limit_ns_, share_millis_);
}

std::optional<std::uint64_t> parse_cpu_counter(std::string_view text) {
  const bool keyed = text.starts_with(kUsage);
  if (keyed) text.remove_prefix(kUsage.size());
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || (end != text.data() + text.size() && *end != '\n')) {
    return std::nullopt;
  }
  if (!keyed) return value;
  if (value > std::numeric_limits<std::uint64_t>::max() / 1000) return std::nullopt;
  return value * 1000;
}

std::optional<std::chrono::nanoseconds> pause_for(std::uint64_t used_ns, std::uint64_t limit_ns,
                                                  std::uint64_t share_millis) {
  if (used_ns >= limit_ns) return std::nullopt;
  const std::uint64_t rest = (limit_ns - used_ns) / share_millis;
  constexpr std::uint64_t kLongest = std::chrono::nanoseconds(std::chrono::hours(24)).count();
  if (rest > kLongest / 1000) return std::chrono::nanoseconds(kLongest);
  return std::max(kShortest, std::chrono::nanoseconds(rest * 1000));
}

}  // namespace casemate::guest
