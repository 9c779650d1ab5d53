#include "casemate/egress/relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/sys/socket.h"
#include "casemate/sys/tcp.h"

namespace casemate {
namespace {

constexpr std::size_t kTurn = 1 << 20;

void await_readable(int socket) {
  pollfd entry{socket, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, -1), 1);
}

// One end is the relay's, the other the test's.
struct Ends {
  RelayEnd relay;
  sys::UniqueFd test;
};

Ends unix_ends() {
  auto [one, other] = sys::socket_pair(sys::SocketType::stream);
  return {{std::move(one), true, true}, std::move(other)};
}

Ends tcp_ends() {
  const sys::LoopbackListener listener = sys::listen_on_loopback();
  sys::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(listener.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  await_readable(listener.socket.get());
  return {{sys::accept_connection(listener.socket.get()), true, true}, std::move(client)};
}

void set_nonblocking(const Ends& ends) {
  const int on = 1;
  setsockopt(ends.relay.socket.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
  sys::make_blocking(ends.test.get(), std::chrono::seconds(20));
  ASSERT_EQ(fcntl(ends.relay.socket.get(), F_SETFL, O_NONBLOCK), 0);
}

void say(const Ends& ends, std::string_view text, int flags = 0) {
  ASSERT_EQ(send(ends.test.get(), text.data(), text.size(), flags | MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::string hear(const Ends& ends) {
  std::array<char, 4096> buffer;
  const ssize_t got = recv(ends.test.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  return got < 0 ? "nothing" : std::string(buffer.data(), static_cast<std::size_t>(got));
}

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    set_nonblocking(from_);
    set_nonblocking(to_);
  }
  Relay::State run(Relay& relay, Ends& from, Ends& to) {
    from.relay.readable = true;
    return relay.run(from.relay, to.relay, pipes_, kTurn, left_);
  }

  RelayPipes pipes_;
  std::uint64_t left_ = 1'000'000;
  Ends from_ = unix_ends();
  Ends to_ = unix_ends();
};

TEST_F(RelayTest, MovesWhatThereIsAndThenTheEnd) {
  Relay relay;
  relay.put_first("first ");
  say(from_, "second");
  EXPECT_EQ(run(relay, from_, to_), Relay::State::waits);
  EXPECT_EQ(hear(to_), "first second");
  EXPECT_EQ(relay.bytes(), 12U);
  EXPECT_EQ(left_, 1'000'000U - 12);
  shutdown(from_.test.get(), SHUT_WR);
  EXPECT_EQ(run(relay, from_, to_), Relay::State::ended);
  EXPECT_TRUE(relay.ended());
  EXPECT_EQ(hear(to_), "");
}

// Each holds bytes that it cannot pass on yet, and both count on the same rest.
TEST_F(RelayTest, WhatIsLeftIsNeverExceededByRelaysThatShareIt) {
  Ends other_from = unix_ends();
  Ends other_to = unix_ends();
  set_nonblocking(other_from);
  set_nonblocking(other_to);
  left_ = 100;
  Relay one;
  Relay other;
  say(from_, std::string(80, 'x'));
  say(other_from, std::string(80, 'x'));
  to_.relay.writable = other_to.relay.writable = false;
  EXPECT_EQ(run(one, from_, to_), Relay::State::waits);
  EXPECT_EQ(run(other, other_from, other_to), Relay::State::waits);
  EXPECT_EQ(left_, 0U);
  EXPECT_EQ(one.under_way() + other.under_way(), 100U);
  to_.relay.writable = other_to.relay.writable = true;
  EXPECT_EQ(run(one, from_, to_), Relay::State::waits);
  EXPECT_EQ(run(other, other_from, other_to), Relay::State::broken);
  EXPECT_TRUE(other.over_bound());
  EXPECT_EQ(hear(to_).size() + hear(other_to).size(), 100U);
  EXPECT_EQ(one.bytes() + other.bytes(), 100U);
}

TEST_F(RelayTest, WhatWasHeldBackCountsToo) {
  left_ = 3;
  Relay relay;
  relay.put_first("four");
  EXPECT_EQ(run(relay, from_, to_), Relay::State::broken);
  EXPECT_TRUE(relay.over_bound());
  EXPECT_EQ(hear(to_), "nothing");
  EXPECT_EQ(left_, 3U);
}

TEST_F(RelayTest, UrgentDataMovesLikeAnyOther) {
  Ends from = tcp_ends();
  set_nonblocking(from);
  Relay relay;
  say(from, "before");
  say(from, "!", MSG_OOB);
  say(from, "behind");
  shutdown(from.test.get(), SHUT_WR);
  // As it arrives; at a mark that it stops at for ever, this does not end.
  do {
    await_readable(from.relay.socket.get());
  } while (run(relay, from, to_) == Relay::State::waits);
  EXPECT_TRUE(relay.ended());
  EXPECT_EQ(hear(to_), "before!behind");
  EXPECT_EQ(left_, 1'000'000U - 13);
}

TEST_F(RelayTest, UrgentDataOfAProgramToo) {
  Relay relay;
  say(from_, "before");
  if (send(from_.test.get(), "!", 1, MSG_OOB | MSG_NOSIGNAL) != 1) {
    GTEST_SKIP() << "this kernel's Unix sockets have no urgent data";
  }
  say(from_, "behind");
  EXPECT_EQ(run(relay, from_, to_), Relay::State::waits);
  EXPECT_EQ(hear(to_), "before!behind");
}

TEST_F(RelayTest, PipesAreKeptForNoMoreThanThereMayBe) {
  std::vector<RelayPipes::Pipe> taken;
  for (int count = 0; count < 3; ++count) taken.push_back(pipes_.take());
  const int last = taken.back().out.get();
  for (RelayPipes::Pipe& pipe : taken) pipes_.give(std::move(pipe));
  pipes_.keep_at_most(0);
  EXPECT_EQ(fcntl(last, F_GETFD), -1) << "it is closed";
}

}  // namespace
}  // namespace casemate
