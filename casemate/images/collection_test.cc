#include "casemate/images/collection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace casemate::images {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kNow = 1'000'000'000;
constexpr std::int64_t kDay = 24 * 3600;

std::vector<std::string> collected(const std::vector<CollectableImage>& images,
                                   const CollectionRule& rule, const std::string& busy = "") {
  std::vector<std::string> gone;
  collect(images, rule, kNow, [&](const CollectableImage& image) {
    if (image.id == busy) return false;
    gone.push_back(image.id);
    return true;
  });
  return gone;
}

TEST(Collection, TakesWhatNothingRanFromForLongerThanTheRuleSays) {
  const CollectionRule rule{.unused_for = std::chrono::seconds(30 * kDay)};
  EXPECT_THAT(collected({{"young", 1, kNow - kDay},
                         {"equal", 1, kNow - 30 * kDay},
                         {"more", 1, kNow - 30 * kDay - 1},
                         {"old", 1, 0}},
                        rule),
              ElementsAre("old", "more"));
}

TEST(Collection, TakesTheLongestUnusedUntilTheRestFits) {
  const CollectionRule rule{.unused_for = {}, .max_bytes = 20};
  const std::vector<CollectableImage> images{
      {"c", 10, kNow - kDay}, {"a", 10, kNow - 3 * kDay}, {"b", 10, kNow - 2 * kDay}};
  EXPECT_THAT(collected(images, rule), ElementsAre("a"));
  EXPECT_THAT(collected(images, rule, "a"), ElementsAre("b")) << "in use";
  EXPECT_THAT(collected(images, {.unused_for = {}, .max_bytes = 30}), IsEmpty());
  EXPECT_THAT(collected(images, {.unused_for = {}, .max_bytes = 29}), ElementsAre("a"));
}

TEST(Collection, LeavesWhatCameInTheLastHourOrInTheFuture) {
  const CollectionRule rule{.unused_for = std::chrono::seconds(1), .max_bytes = 1};
  EXPECT_THAT(collected({{"an hour ago", 9, kNow - 3600},
                         {"within the hour", 9, kNow - 3599},
                         {"ahead", 9, std::numeric_limits<std::int64_t>::max()}},
                        rule),
              ElementsAre("an hour ago"));
}

TEST(Collection, IsOffByZero) {
  EXPECT_THAT(collected({{"old", 1ULL << 60U, 0}}, {.unused_for = {}, .max_bytes = 0}), IsEmpty());
}

}  // namespace
}  // namespace casemate::images
