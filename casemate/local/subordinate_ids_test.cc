#include "casemate/local/subordinate_ids.h"

#include <gtest/gtest.h>

namespace casemate::local {
namespace {

using guest::IdRange;

TEST(SubordinateIds, AreThoseOfTheUserByNameOrByNumber) {
  const char* text = "root:1:2\nann:100000:65536\n1001:300000:1000\nannabel:1:99999\n";
  EXPECT_EQ(largest_range(text, "ann", 1000), (IdRange{100000, 65536}));
  EXPECT_EQ(largest_range(text, "bob", 1001), (IdRange{300000, 1000}));
  EXPECT_EQ(largest_range(text, "", 1001), (IdRange{300000, 1000})) << "a user without a name";
  EXPECT_EQ(largest_range(text, "carl", 1002), std::nullopt);
}

TEST(SubordinateIds, AreTheLargestOfSeveral) {
  EXPECT_EQ(largest_range("ann:5:10\nann:100:20\nann:9:10", "ann", 1), (IdRange{100, 20}));
}

TEST(SubordinateIds, AreAtLeastTwo) {
  EXPECT_EQ(largest_range("ann:5:1\n", "ann", 1), std::nullopt);
  EXPECT_EQ(largest_range("ann:5:2\n", "ann", 1), (IdRange{5, 2}));
}

TEST(SubordinateIds, PassOverLinesThatAreNone) {
  EXPECT_EQ(largest_range("ann\nann:\nann:5\nann:x:5\nann:5:x\nann:5:5:5\n:5:5\n\nann:-1:5\n"
                          "ann:7:3",
                          "ann", 1),
            (IdRange{7, 3}));
  EXPECT_EQ(largest_range("", "ann", 1), std::nullopt);
  EXPECT_EQ(largest_range(":5:5\n", "", 1), std::nullopt) << "no name is nobody's name";
}

TEST(SubordinateIds, OfARootAreThoseThatAreMappedToIt) {
  EXPECT_TRUE(maps_ids_to_spare("         0          0 4294967295\n"));
  EXPECT_TRUE(
      maps_ids_to_spare("         0       1000          1\n         1     100000          2\n"));
  EXPECT_TRUE(maps_ids_to_spare("0 1000 3\n"));
  EXPECT_FALSE(maps_ids_to_spare("0 1000 2\n"));
  EXPECT_FALSE(maps_ids_to_spare("         0       1000          1\n"));
  EXPECT_FALSE(maps_ids_to_spare(""));
}

TEST(SubordinateIds, AreFreeBehindAllThatWereGiven) {
  EXPECT_EQ(first_free_id(""), 100000U);
  EXPECT_EQ(first_free_id("ann:100000:65536\nbob:231072:65536\ncarl:165536:65536\n"), 296608U);
  EXPECT_EQ(first_free_id("ann:5:10\nbob:x:y\n"), 100000U);
}

}  // namespace
}  // namespace casemate::local
