#include "casemate/images/collection.h"

#include <algorithm>

namespace casemate::images {
namespace {

constexpr std::int64_t kGrace = 3600;

}  // namespace

void collect(std::vector<CollectableImage> images, const CollectionRule& rule, std::int64_t now,
             const std::function<bool(const CollectableImage&)>& remove) {
  std::ranges::sort(images, {}, &CollectableImage::used);
  std::uint64_t total = 0;
  for (const CollectableImage& image : images) total += image.bytes;
  for (const CollectableImage& image : images) {
    // Without overflow, whatever a record says.
    if (image.used > now - kGrace) return;
    const bool expired = rule.unused_for.count() > 0 && image.used < now - rule.unused_for.count();
    const bool too_much = rule.max_bytes > 0 && total > rule.max_bytes;
    if ((expired || too_much) && remove(image)) total -= image.bytes;
  }
}

}  // namespace casemate::images
