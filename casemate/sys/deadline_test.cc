#include "casemate/sys/deadline.h"

#include <gtest/gtest.h>

#include <array>

#include "casemate/sys/epoll.h"

namespace casemate::sys {
namespace {

using std::chrono::nanoseconds;

TEST(Deadline, EndsAtTheClocksEndAndNeverInThePast) {
  const SteadyTime now = SteadyTime::clock::now();
  EXPECT_EQ(later_than(now, nanoseconds(5)), now + nanoseconds(5));
  EXPECT_EQ(later_than(now, SteadyTime::max() - now), SteadyTime::max());
  EXPECT_EQ(later_than(now, SteadyTime::max() - now + nanoseconds(1)), SteadyTime::max());
  EXPECT_EQ(later_than(now, nanoseconds::max()), SteadyTime::max());
  EXPECT_EQ(later_than(SteadyTime::max(), nanoseconds::max()), SteadyTime::max());
  EXPECT_EQ(later_than(SteadyTime(nanoseconds(-7)), nanoseconds::max()),
            SteadyTime(nanoseconds::max() - nanoseconds(7)));
  EXPECT_EQ(deadline_after(nanoseconds::max()), SteadyTime::max());
}

TEST(Deadline, IsAtOnceForAPatienceBelowZero) {
  const SteadyTime now = SteadyTime::clock::now();
  EXPECT_EQ(later_than(now, nanoseconds(-1)), now);
  EXPECT_EQ(later_than(now, nanoseconds::min()), now);
}

TEST(Deadline, TheClocksEndIsNeverForWhatWaits) {
  const UniqueFd event = make_event();
  raise_event(event.get());
  std::array<pollfd, 1> entries{pollfd{event.get(), POLLIN, 0}};
  EXPECT_EQ(poll_until(entries, SteadyTime::max()), 1);
  // The kernel takes the time, and the timer has not rung.
  const UniqueFd timer = make_timer();
  set_timer(timer.get(), SteadyTime::max());
  std::array<pollfd, 1> ringing{pollfd{timer.get(), POLLIN, 0}};
  EXPECT_EQ(poll_until(ringing, SteadyTime::clock::now()), 0);
}

}  // namespace
}  // namespace casemate::sys
