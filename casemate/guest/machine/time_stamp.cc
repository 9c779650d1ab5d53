#include "casemate/guest/machine/time_stamp.h"

#include <time.h>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace casemate::guest {
namespace {

constexpr std::uint64_t kMeasuredNanoseconds = 20000000;

std::uint64_t monotonic_nanoseconds() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t time_stamp_khz() noexcept {
#ifdef __x86_64__
  const std::uint64_t begin = monotonic_nanoseconds();
  const std::uint64_t first = __rdtsc();
  std::uint64_t end = begin;
  while (end - begin < kMeasuredNanoseconds) end = monotonic_nanoseconds();
  const std::uint64_t ticks = __rdtsc() - first;
  return ticks * 1000000 / (end - begin);
#else
  return 0;
#endif
}

}  // namespace casemate::guest
