#include "casemate/local/memory_kills.h"

#include <gtest/gtest.h>

namespace casemate::local {
namespace {

TEST(MemoryKills, ConcernNobodyWhileWhomTheCountStays) {
  MemoryKills kills;
  EXPECT_FALSE(kills.concern(0, 0, true));
  EXPECT_FALSE(kills.concern(3, 3, true));
  EXPECT_FALSE(kills.concern(3, 3, false));
}

TEST(MemoryKills, ThatEndedAProgramAreNobodyElses) {
  MemoryKills kills;
  EXPECT_TRUE(kills.concern(0, 1, true));
  EXPECT_FALSE(kills.concern(0, 1, false)) << "which ran beside it";
  EXPECT_FALSE(kills.concern(0, 1, true)) << "which killed itself";
  EXPECT_TRUE(kills.concern(0, 2, false)) << "for the second kill";
}

TEST(MemoryKills, ThatNoProgramsEndExplainsAreEveryOnesThatRanMeanwhile) {
  MemoryKills kills;
  EXPECT_TRUE(kills.concern(0, 1, false));
  EXPECT_TRUE(kills.concern(0, 1, false));
  EXPECT_FALSE(kills.concern(1, 1, false)) << "which began later";
  EXPECT_TRUE(kills.concern(0, 1, true)) << "which was the one, and is asked for last";
}

// The one that is explained is not one that happened before a program began.
TEST(MemoryKills, OfEarlierAreNotTakenForThoseOfNow) {
  MemoryKills kills;
  EXPECT_TRUE(kills.concern(0, 1, false)) << "a child of a program that is over";
  EXPECT_TRUE(kills.concern(1, 2, true));
  EXPECT_FALSE(kills.concern(1, 2, false)) << "which ran beside that";
  // One that was ended before another began is asked for after that had ended the same way.
  EXPECT_TRUE(kills.concern(3, 4, true));
  EXPECT_TRUE(kills.concern(2, 4, true));
  EXPECT_FALSE(kills.concern(2, 4, false));
}

}  // namespace
}  // namespace casemate::local
