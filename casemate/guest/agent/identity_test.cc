#include "casemate/guest/agent/identity.h"

#include <gtest/gtest.h>

namespace casemate::guest {
namespace {

TEST(SubordinateIds, AreReadAsTheyAreWritten) {
  const SubordinateIds ids{.users = {100000, 65536}, .groups = {200000, 2}};
  EXPECT_EQ(encode(ids), "100000:65536:200000:2");
  EXPECT_EQ(decode_subordinate_ids(encode(ids)), ids);
}

TEST(SubordinateIds, AreNothingElse) {
  for (const char* text : {"", "1", "1:2:3", "1:2:3:4:", "1:2:3:4:5", "1:1:3:4", "1:2:3:1",
                           "a:2:3:4", "1:2:3:-4", "1:2:3:4294967296", "1;2;3;4"}) {
    EXPECT_EQ(decode_subordinate_ids(text), std::nullopt) << text;
  }
}

TEST(SpareIds, AreHighOnesWhereAllAreMapped) {
  EXPECT_EQ(spare_ids("         0          0 4294967295\n"), (IdRange{0x70000000, 0x02000000}));
  EXPECT_EQ(spare_ids("0 0 1\n1 5 1912602623\n"), (IdRange{0x70000000, 0x02000000}))
      << "the last of them is 0x71ffffff";
  EXPECT_NE(spare_ids("0 0 1\n1 5 1912602622\n"), (IdRange{0x70000000, 0x02000000}));
}

TEST(SpareIds, AreOfTheMiddleOfAContainersOwn) {
  EXPECT_EQ(spare_ids("0 1000 1\n1 100000 65536\n"), (IdRange{32769, 16384}));
  EXPECT_EQ(spare_ids("0 100000 65537\n"), (IdRange{32769, 16384})) << "never 0";
}

TEST(SpareIds, AreAllOfAFew) {
  EXPECT_EQ(spare_ids("0 1000 1\n1 100000 2\n"), (IdRange{1, 2}));
  EXPECT_EQ(spare_ids("0 100000 3"), (IdRange{1, 2}));
  EXPECT_EQ(spare_ids("7 100000 1023\n"), (IdRange{7, 1023}));
}

TEST(SpareIds, AreNoneWhereThereAreNotTwo) {
  for (const char* map :
       {"", "\n", "0 1000 1\n", "0 1000 2\n", "5 1000 1\n1 2000 1\n", "0 0\n", "x"}) {
    EXPECT_EQ(spare_ids(map), std::nullopt) << map;
  }
}

TEST(SandboxIds, MapTheAgentAndTheProgramOrTheProgramAlone) {
  const SandboxIds pair{.first_user = 70, .first_group = 90};
  EXPECT_EQ(pair.user_map(), "0 70 1\n1000 71 1\n");
  EXPECT_EQ(pair.group_map(), "0 90 1\n1000 91 1\n");
  EXPECT_FALSE(pair.one());
  EXPECT_EQ(SandboxIds{}.user_map(), "1000 0 1\n");
  EXPECT_TRUE(SandboxIds{}.one());
}

}  // namespace
}  // namespace casemate::guest
