#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The bound on a call's processor time, and the kernel's counter of it.
//
// There is no event for it: no control group tells when a sum of processor time is reached. But n
// processors cannot use up a rest of t in less than t / n, so nobody has to look before that. A
// busy program on one processor is looked at a few times, an idle one next to never.
class CpuBudgetMeter {
 public:
  // `counter` is a cpuacct.usage (nanoseconds) or cpu.stat (a line "usage_usec N") of the kernel's.
  // `share_millis` is how many processors can be used at a time, in thousandths; 0: all there are.
  CpuBudgetMeter(sys::UniqueFd counter, std::uint64_t limit_ns, std::uint64_t share_millis);

  // How long the rest will last at least; absent when there is none. Throws `std::system_error`
  // when the counter cannot be read.
  std::optional<std::chrono::nanoseconds> pause() const;

 private:
  sys::UniqueFd counter_;
  std::uint64_t limit_ns_;
  std::uint64_t share_millis_;
};

// Nanoseconds in a counter's text; absent for anything else.
std::optional<std::uint64_t> parse_cpu_counter(std::string_view text);

// `pause` for what was used so far; `share_millis` above 0. At least 5 ms, so that the last of it
// is not looked at all the time: that much more may be used, on each processor.
std::optional<std::chrono::nanoseconds> pause_for(std::uint64_t used_ns, std::uint64_t limit_ns,
                                                  std::uint64_t share_millis);

}  // namespace casemate::guest
