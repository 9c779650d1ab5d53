#include "casemate/images/collection.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

namespace casemate::images {
namespace {

using std::chrono::seconds;

constexpr seconds kGrace = std::chrono::hours(1);

// A machine that was off for months is rarer than one whose clock was wrong as it started: however
// far it went over a start, nothing that was used of late comes to its end by it.
constexpr int kStartsToTheEnd = 4;
constexpr seconds kMostOverABoot = std::chrono::hours(24 * 7);

seconds most_over_a_boot(const CollectionRule& rule) {
  if (rule.unused_for.count() == 0) return kMostOverABoot;
  return std::min(rule.unused_for / kStartsToTheEnd, kMostOverABoot);
}

}  // namespace

void collect(int directory, const std::vector<CollectableImage>& images, const CollectionRule& rule,
             const Clocks& now, const std::function<bool(const CollectableImage&)>& remove) {
  std::vector<UsedThing> things;
  std::uint64_t total = 0;
  for (const CollectableImage& image : images) {
    things.push_back({.name = image.id, .used = image.used});
    total += image.bytes;
  }
  const IdleTimes times(directory, things, most_over_a_boot(rule), now);
  std::vector<std::size_t> order(images.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t at) {
    return std::tuple(-times.idle()[at].count(), images[at].used);
  });
  for (const std::size_t at : order) {
    const seconds idle = times.idle()[at];
    if (idle < kGrace) break;
    const bool expired = rule.unused_for.count() > 0 && idle > rule.unused_for;
    const bool too_much = rule.max_bytes > 0 && total > rule.max_bytes;
    if ((expired || too_much) && remove(images[at])) total -= images[at].bytes;
  }
  times.write();
}

}  // namespace casemate::images
