#include "casemate/egress/descriptor_budget.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace casemate {
namespace {

// Takes as many as are to be had, for a call that has none yet.
std::size_t take_all(DescriptorBudget& budget) {
  std::size_t own = 0;
  while (budget.take(own)) ++own;
  return own;
}

TEST(DescriptorBudget, CountsSixForATunnelOverAllCalls) {
  DescriptorBudget budget([] { return 6 * 2 + 5; });
  EXPECT_TRUE(budget.take(0));
  EXPECT_TRUE(budget.take(0)) << "another call";
  EXPECT_FALSE(budget.take(0));
  budget.give_back();
  EXPECT_TRUE(budget.take(0));
}

TEST(DescriptorBudget, NoCallHasAllOfIt) {
  DescriptorBudget budget([] { return 6 * 900; });
  EXPECT_EQ(take_all(budget), 600U);
  EXPECT_EQ(take_all(budget), 200U);
  EXPECT_EQ(take_all(budget), 67U);
  for (int calls = 0; calls < 8; ++calls) EXPECT_TRUE(budget.take(0)) << "there is one left";
}

TEST(DescriptorBudget, AsksEachTimeHowManyThereMayBe) {
  std::size_t most = 0;
  DescriptorBudget budget([&] { return most; });
  EXPECT_FALSE(budget.take(0));
  most = 6;
  EXPECT_TRUE(budget.take(0));
  most = 0;
  EXPECT_FALSE(budget.take(0)) << "a limit that was lowered under what is taken";
}

TEST(DescriptorBudget, OfThisProcessLeavesItHalf) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  DescriptorBudget& budget = *DescriptorBudget::of_this_process();
  std::size_t taken = 0;
  while (budget.take(0)) ++taken;
  for (std::size_t given = 0; given < taken; ++given) budget.give_back();
  EXPECT_EQ(taken, 128U / 6);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace casemate
