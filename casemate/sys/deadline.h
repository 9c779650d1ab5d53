#pragma once

// Times by which something is to happen, out of a patience that somebody else states.

#include <algorithm>
#include <chrono>

#include "casemate/sys/poll.h"

namespace casemate::sys {

// `patience` after `time`. What is below 0 counts as 0, and what would lie past the end of the
// clock is its end, which every wait takes for "never": the plain sum would lie in the past.
inline SteadyTime later_than(SteadyTime time, std::chrono::nanoseconds patience) {
  patience = std::max(patience, std::chrono::nanoseconds{0});
  // A time before the clock's start leaves room for any patience, but not for the difference.
  if (time.time_since_epoch().count() > 0 && patience > SteadyTime::max() - time) {
    return SteadyTime::max();
  }
  return time + patience;
}

// The same from now on.
inline SteadyTime deadline_after(std::chrono::nanoseconds patience) {
  return later_than(SteadyTime::clock::now(), patience);
}

}  // namespace casemate::sys
