#include "casemate/guest/agent/leases.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/no_descriptor_left.h"
#include "tests/support/scratch.h"

namespace casemate::guest {
namespace {

using namespace std::chrono_literals;
using sys::UniqueFd;

bool is_readable(int descriptor) {
  pollfd entry{descriptor, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

// Of the timers of this process, by /proc.
std::multiset<int> clocks_of_timers() {
  std::multiset<int> clocks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream text(entry.path());
    for (std::string word; text >> word;) {
      int clock = -1;
      if (word == "clockid:" && text >> clock) clocks.insert(clock);
    }
  }
  return clocks;
}

// Idle time is of no clock that somebody may set, and goes on while the machine sleeps.
TEST(Leases, ClocksThatJumpCountNoIdleTime) {
  const Scratch scratch;
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sys::bind_to_path(socket.get(), (scratch / "leases").native());
  auto [first, firsts_end] = sys::socket_pair(sys::SocketType::stream);
  ASSERT_EQ(clocks_of_timers(), std::multiset<int>{});
  const Leases leases(std::move(socket), std::move(firsts_end), 600'000);
  // The other waits a moment where descriptors ran out.
  EXPECT_EQ(clocks_of_timers(), (std::multiset<int>{CLOCK_MONOTONIC, CLOCK_BOOTTIME}));
}

TEST(Leases, OneThatNoDescriptorIsLeftForIsTakenLaterAndNobodySpinsUntilThen) {
  const Scratch scratch;
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sys::bind_to_path(socket.get(), (scratch / "leases").native());
  auto [first, firsts_end] = sys::socket_pair(sys::SocketType::stream);
  Leases leases(std::move(socket), std::move(firsts_end), 0);
  leases.start_listening();
  const UniqueFd client = sys::connect_to_address((scratch / "leases").native());
  const LeaseRequest request{.type = kLeaseRequest, .reserved = {}, .keep_idle_ms = 0};
  ASSERT_EQ(write(client.get(), &request, sizeof request), ssize_t{sizeof request});
  {
    const NoDescriptorLeft short_of_them;
    ASSERT_TRUE(is_readable(leases.fd()));
    leases.handle();
    EXPECT_FALSE(is_readable(leases.fd())) << "the same again, at once";
    EXPECT_EQ(leases.granted(), 1U);
  }
  const auto patience = std::chrono::steady_clock::now() + 20s;
  while (leases.granted() < 2) {
    std::array<pollfd, 1> entry{pollfd{leases.fd(), POLLIN, 0}};
    ASSERT_GT(sys::poll_until(entry, patience), 0);
    leases.handle();
  }
  char answer = 0;
  EXPECT_EQ(read(client.get(), &answer, 1), 1);
  EXPECT_EQ(answer, kLeaseGranted);
}

}  // namespace
}  // namespace casemate::guest
