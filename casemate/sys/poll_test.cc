#include "casemate/sys/poll.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace casemate::sys {
namespace {

using namespace std::chrono_literals;

TEST(Poll, ATimeThatIsPastReturnsAtOnce) {
  const UniqueFd event = make_event();
  std::array<pollfd, 1> entries{pollfd{event.get(), POLLIN, 0}};
  EXPECT_EQ(poll_until(entries, SteadyTime::clock::now() - 1s), 0);
}

TEST(Poll, WaitsNoLessThanAsked) {
  const UniqueFd event = make_event();
  std::array<pollfd, 1> entries{pollfd{event.get(), POLLIN, 0}};
  const SteadyTime until = SteadyTime::clock::now() + 3ms;
  EXPECT_EQ(poll_until(entries, until), 0);
  EXPECT_GE(SteadyTime::clock::now(), until);
}

TEST(Poll, AnotherThreadsEventEndsAnEndlessWait) {
  const UniqueFd event = make_event();
  std::array<pollfd, 1> entries{pollfd{event.get(), POLLIN, 0}};
  std::jthread other([&] { raise_event(event.get()); });
  EXPECT_EQ(poll_until(entries, std::nullopt), 1);
}

}  // namespace
}  // namespace casemate::sys
