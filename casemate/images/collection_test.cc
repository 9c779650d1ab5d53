#include "casemate/images/collection.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "casemate/sys/unique_fd.h"
#include "tests/support/scratch.h"

namespace casemate::images {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr seconds kDay = std::chrono::hours(24);

class Collection : public testing::Test {
 protected:
  // An image that was used `idle` before the next collection.
  static CollectableImage image(std::string id, std::uint64_t bytes, seconds idle) {
    return {.id = std::move(id), .bytes = bytes, .used = (kNow - idle).count()};
  }
  // Of a machine that was looked at before any of them was used.
  std::vector<std::string> collected(const std::vector<CollectableImage>& images,
                                     const CollectionRule& rule, const std::string& busy = "") {
    const Scratch scratch;
    const sys::UniqueFd directory(open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const seconds before = 1000 * kDay;
    collect(directory.get(), {}, {}, {"boot", seconds(0), kNow - before}, {});
    std::vector<std::string> gone;
    collect(directory.get(), images, rule, {"boot", before, kNow},
            [&](const CollectableImage& image) {
              if (image.id == busy) return false;
              gone.push_back(image.id);
              return true;
            });
    return gone;
  }
  static constexpr seconds kNow{1'700'000'000};
};

TEST_F(Collection, TakesWhatNothingRanFromForLongerThanTheRuleSays) {
  const CollectionRule rule{.unused_for = 30 * kDay};
  EXPECT_THAT(collected({image("young", 1, kDay), image("equal", 1, 30 * kDay),
                         image("more", 1, 30 * kDay + seconds(1)), image("old", 1, 900 * kDay)},
                        rule),
              ElementsAre("old", "more"));
}

TEST_F(Collection, TakesTheLongestUnusedUntilTheRestFits) {
  const CollectionRule rule{.unused_for = {}, .max_bytes = 20};
  const std::vector<CollectableImage> images{image("c", 10, kDay), image("a", 10, 3 * kDay),
                                             image("b", 10, 2 * kDay)};
  EXPECT_THAT(collected(images, rule), ElementsAre("a"));
  EXPECT_THAT(collected(images, rule, "a"), ElementsAre("b")) << "in use";
  EXPECT_THAT(collected(images, {.unused_for = {}, .max_bytes = 30}), IsEmpty());
  EXPECT_THAT(collected(images, {.unused_for = {}, .max_bytes = 29}), ElementsAre("a"));
}

TEST_F(Collection, LeavesWhatCameInTheLastHourOrInTheFuture) {
  const CollectionRule rule{.unused_for = seconds(1), .max_bytes = 1};
  EXPECT_THAT(
      collected({image("an hour ago", 9, seconds(3600)), image("within the hour", 9, seconds(3599)),
                 image("ahead", 9, -50 * 365 * kDay)},
                rule),
      ElementsAre("an hour ago"));
}

TEST_F(Collection, IsOffByZero) {
  EXPECT_THAT(
      collected({image("old", 1ULL << 60U, 900 * kDay)}, {.unused_for = {}, .max_bytes = 0}),
      IsEmpty());
}

TEST_F(Collection, TakesNothingUsedOfLateWhateverTheClockSaysAfterAStartOfTheMachine) {
  for (const seconds unused_for : {30 * kDay, 2 * kDay}) {
    const Scratch scratch;
    const sys::UniqueFd directory(open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto is_taken = [&](const std::string& boot, seconds wall) {
      bool taken = false;
      collect(directory.get(), {image("it", 1, seconds(0))}, {.unused_for = unused_for},
              {boot, seconds(10), wall}, [&](const CollectableImage&) { return taken = true; });
      return taken;
    };
    EXPECT_FALSE(is_taken("first", kNow));
    EXPECT_FALSE(is_taken("second", kNow + 50 * 365 * kDay));
  }
}

}  // namespace
}  // namespace casemate::images
