#include "casemate/guest/agent/cpu_budget_meter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <system_error>

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(CpuBudgetMeter, ReadsBothCountersOfTheKernel) {
  EXPECT_EQ(parse_cpu_counter("1500\n"), 1500U);
  EXPECT_EQ(parse_cpu_counter("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n"), 1'500'000U);
  EXPECT_EQ(parse_cpu_counter("0"), 0U);
}

TEST(CpuBudgetMeter, AnythingElseIsNoCounter) {
  for (const char* text : {"", "\n", "-1\n", "user_usec 5\n", "12x\n", "usage_usec \n",
                           "99999999999999999999\n", "usage_usec 18446744073709552\n"}) {
    EXPECT_EQ(parse_cpu_counter(text), std::nullopt) << text;
  }
}

TEST(CpuBudgetMeter, NobodyLooksBeforeTheRestCanHaveBeenSpent) {
  EXPECT_EQ(pause_for(0, 10 * kSecond, 1000), 10s);
  EXPECT_EQ(pause_for(4 * kSecond, 10 * kSecond, 1000), 6s);
  EXPECT_EQ(pause_for(0, 10 * kSecond, 4000), 2500ms);
  EXPECT_EQ(pause_for(0, 10 * kSecond, 100), 100s);
  EXPECT_EQ(pause_for(10 * kSecond - 1, 10 * kSecond, 1000), 5ms);
  EXPECT_EQ(pause_for(0, ~std::uint64_t{0}, 1), 24h);
}

TEST(CpuBudgetMeter, WhatIsSpentHasNoPause) {
  EXPECT_EQ(pause_for(10 * kSecond, 10 * kSecond, 1000), std::nullopt);
  EXPECT_EQ(pause_for(11 * kSecond, 10 * kSecond, 1000), std::nullopt);
}

TEST(CpuBudgetMeter, ReadsItsFileAnewEachTimeAndTrustsNoOther) {
  char name[] = "/tmp/casemate-meter-XXXXXX";
  const int file = mkstemp(name);
  ASSERT_GE(file, 0);
  unlink(name);
  ASSERT_EQ(pwrite(file, "400\n", 4, 0), 4);
  const CpuBudgetMeter meter(sys::UniqueFd(fcntl(file, F_DUPFD_CLOEXEC, 0)), 1000, 0);
  EXPECT_EQ(meter.pause(), 5ms);
  ASSERT_EQ(pwrite(file, "1000\n", 5, 0), 5);
  EXPECT_EQ(meter.pause(), std::nullopt);
  ASSERT_EQ(pwrite(file, "what?", 5, 0), 5);
  EXPECT_THROW(static_cast<void>(meter.pause()), std::system_error);
  close(file);
}

}  // namespace
}  // namespace casemate::guest
