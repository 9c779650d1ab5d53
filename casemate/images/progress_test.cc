#include "casemate/images/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace casemate::images {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kMi = 1 << 20;

class StepTest : public testing::Test {
 protected:
  using Told = std::tuple<ProgressPhase, std::uint64_t, std::uint64_t>;
  ProgressSink sink() {
    return [this](const Progress& progress) {
      EXPECT_EQ(progress.step, "step");
      told_.emplace_back(progress.phase, progress.done, progress.total);
    };
  }
  std::vector<Told> told_;
};

TEST_F(StepTest, IsToldAtItsBeginWithEachMebibyteAndAtItsEnd) {
  const ProgressSink told = sink();
  ProgressStep step(told, "step", 3 * kMi);
  for (const std::uint64_t done : {kMi - 1, kMi, kMi + 1, 2 * kMi - 1, 2 * kMi, 2 * kMi + 5}) {
    step.reach(done);
  }
  step.end();
  EXPECT_THAT(told_, ElementsAre(Told(ProgressPhase::begun, 0, 3 * kMi),
                                 Told(ProgressPhase::going, kMi, 3 * kMi),
                                 Told(ProgressPhase::going, 2 * kMi, 3 * kMi),
                                 Told(ProgressPhase::ended, 3 * kMi, 3 * kMi)));
}

TEST_F(StepTest, NeverHasMoreThanAllOrFewerThanBefore) {
  const ProgressSink told = sink();
  ProgressStep step(told, "step", 2 * kMi);
  step.reach(kMi);
  step.reach(0);
  step.reach(100 * kMi);
  step.reach(~std::uint64_t{0});
  step.end();
  EXPECT_THAT(told_, ElementsAre(Told(ProgressPhase::begun, 0, 2 * kMi),
                                 Told(ProgressPhase::going, kMi, 2 * kMi),
                                 Told(ProgressPhase::going, 2 * kMi, 2 * kMi),
                                 Told(ProgressPhase::ended, 2 * kMi, 2 * kMi)));
}

TEST_F(StepTest, WithoutATotalHadAllThatItReached) {
  const ProgressSink told = sink();
  ProgressStep step(told, "step");
  step.reach(5 * kMi);
  step.reach(5 * kMi + 7);
  step.end();
  EXPECT_THAT(told_,
              ElementsAre(Told(ProgressPhase::begun, 0, 0), Told(ProgressPhase::going, 5 * kMi, 0),
                          Told(ProgressPhase::ended, 5 * kMi + 7, 5 * kMi + 7)));
}

}  // namespace
}  // namespace casemate::images
