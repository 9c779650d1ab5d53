#include "casemate/guest/machine/time_stamp.h"

#include <gtest/gtest.h>

namespace casemate::guest {
namespace {

TEST(TimeStampCounter, RunsByMegahertz) {
#ifdef __x86_64__
  const std::uint64_t khz = time_stamp_khz();
  EXPECT_GT(khz, 100000U);
  EXPECT_LT(khz, 20000000U);
#endif
}

}  // namespace
}  // namespace casemate::guest
