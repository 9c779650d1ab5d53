#pragma once

#include <cstdint>

namespace casemate::guest {

// Ticks of this machine's time stamp counter in a millisecond, which an emulated guest counts by
// and has nothing to measure it with. Takes 20 ms. 0 on a machine without one.
std::uint64_t time_stamp_khz() noexcept;

}  // namespace casemate::guest
