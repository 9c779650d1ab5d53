#include "casemate/sys/epoll.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>
#include <thread>

#include "casemate/sys/poll.h"

namespace casemate::sys {
namespace {

std::set<std::uint64_t> wait(Epoll& epoll) {
  std::array<std::uint64_t, 4> ids{};
  const std::size_t count = epoll.wait(ids);
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)};
}

bool readable(int fd, std::chrono::milliseconds within) {
  std::array<pollfd, 1> entries{pollfd{fd, POLLIN, 0}};
  return poll_until(entries, SteadyTime::clock::now() + within) == 1;
}

TEST(Epoll, ReportsALevelForAsLongAsItIsThere) {
  Epoll epoll;
  const UniqueFd event = make_counting_event();
  epoll.add(event.get(), 7, Trigger::level);
  raise_event(event.get());
  EXPECT_EQ(wait(epoll), std::set<std::uint64_t>{7});
  EXPECT_EQ(wait(epoll), std::set<std::uint64_t>{7});
}

TEST(Epoll, ReportsOnceUntilItIsArmedAnew) {
  Epoll epoll;
  const UniqueFd once = make_counting_event();
  const UniqueFd other = make_counting_event();
  epoll.add(once.get(), 1, Trigger::once);
  epoll.add(other.get(), 2, Trigger::level);
  raise_event(once.get());
  EXPECT_EQ(wait(epoll), std::set<std::uint64_t>{1});
  raise_event(other.get());
  EXPECT_EQ(wait(epoll), std::set<std::uint64_t>{2});
  epoll.rearm(once.get(), 1);
  EXPECT_EQ(wait(epoll), (std::set<std::uint64_t>{1, 2}));
}

TEST(Epoll, WakesAWaitingThreadForWhatIsAddedMeanwhile) {
  Epoll epoll;
  const UniqueFd event = make_counting_event();
  std::set<std::uint64_t> seen;
  std::thread waiting([&] { seen = wait(epoll); });
  epoll.add(event.get(), 3, Trigger::once);
  raise_event(event.get());
  waiting.join();
  EXPECT_EQ(seen, std::set<std::uint64_t>{3});
}

TEST(Epoll, LooksWithoutWaitingAndForgetsWhatIsRemoved) {
  Epoll epoll;
  std::array<std::uint64_t, 4> ids{};
  EXPECT_EQ(epoll.look(ids), 0U);
  const UniqueFd event = make_counting_event();
  epoll.add(event.get(), 5, Trigger::level);
  EXPECT_EQ(epoll.look(ids), 0U);
  raise_event(event.get());
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(epoll.look(ids), 1U);
    EXPECT_EQ(ids[0], 5U);
  }
  const UniqueFd copy(dup(event.get()));
  epoll.remove(event.get());
  EXPECT_EQ(epoll.look(ids), 0U);
}

TEST(CountingEvent, GivesOneForEachThatWasRaised) {
  const UniqueFd event = make_counting_event();
  raise_event(event.get());
  raise_event(event.get());
  EXPECT_TRUE(take_one(event.get()));
  EXPECT_TRUE(take_one(event.get()));
  EXPECT_FALSE(take_one(event.get()));
}

TEST(Timer, IsReadableOnceItsTimeHasCome) {
  using std::chrono::milliseconds;
  const UniqueFd timer = make_timer();
  EXPECT_FALSE(readable(timer.get(), milliseconds(1)));
  set_timer(timer.get(), SteadyTime::clock::now() + std::chrono::hours(1));
  EXPECT_FALSE(readable(timer.get(), milliseconds(1)));
  set_timer(timer.get(), SteadyTime::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(readable(timer.get(), milliseconds(1000)));
  set_timer(timer.get(), SteadyTime::clock::now() + milliseconds(1));
  EXPECT_TRUE(readable(timer.get(), milliseconds(10000)));
  set_timer(timer.get(), std::nullopt);
  EXPECT_FALSE(readable(timer.get(), milliseconds(1)));
  set_timer(timer.get(), SteadyTime());
  EXPECT_TRUE(readable(timer.get(), milliseconds(1000)));
}

}  // namespace
}  // namespace casemate::sys
