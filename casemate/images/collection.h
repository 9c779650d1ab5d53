#pragma once

// Which images go by themselves.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "casemate/images/idle_times.h"

namespace casemate::images {

struct CollectionRule {
  // An image that no sandbox was started from for so long goes; 0: none does.
  std::chrono::seconds unused_for = std::chrono::hours(24 * 30);
  // While all together have more bytes, the one that was used longest ago goes; 0: no bound.
  std::uint64_t max_bytes = 0;
};

struct CollectableImage {
  // Valid UTF-8.
  std::string id;
  std::uint64_t bytes = 0;
  // When a sandbox was started from it last, or it came: seconds since 1970, by the clock as it was
  // then.
  std::int64_t used = 0;
};

// Offers to `remove` what goes by the rule, longest unused first; false from it says that the image
// stays, because something runs from it. An image of the last hour is not offered: whoever brought
// it may be about to run it. What the clock is set to brings none to its end, and keeps none for
// ever: idle times are counted (idle_times.h) from one collection to the next, in a small file in
// `directory`. Throws `std::system_error` when that cannot be written, once all that goes is gone.
void collect(int directory, const std::vector<CollectableImage>& images, const CollectionRule& rule,
             const Clocks& now, const std::function<bool(const CollectableImage&)>& remove);

}  // namespace casemate::images
