#include "casemate/guest/agent/doors/doors.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "casemate/guest/agent/doors/doors_fixture_test.h"
#include "casemate/sys/socket.h"
#include "tests/support/no_descriptor_left.h"
#include "tests/support/processor_time.h"

namespace casemate::guest {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::StartsWith;

TEST_F(DoorsTest, ListedNameIsReachedAtTheAddressThatTheResolverGivesIt) {
  const std::string address = resolve("Allowed.Test");
  EXPECT_THAT(address, StartsWith("127.64."));
  EXPECT_EQ(resolve("allowed.test", true), address);
  const sys::UniqueFd socket = connect_tcp(address, port_);
  ASSERT_TRUE(socket);
  send_all(socket.get(), "hello");
  shutdown(socket.get(), SHUT_WR);
  EXPECT_EQ(receive_all(socket.get()), "hello");
  EXPECT_THAT(host_.requests(),
              ElementsAre(EgressRequest{EgressDoor::transparent, "allowed.test", port_}));
}

TEST_F(DoorsTest, OtherNamesPortsAndAddressesAreRefusedAtOnce) {
  EXPECT_EQ(resolve("denied.test"), "code 3");
  EXPECT_EQ(resolve("denied.test", true), "code 3");
  const std::string address = resolve("allowed.test");
  EXPECT_FALSE(connect_tcp(address, free_port()));
  EXPECT_FALSE(connect_tcp("127.0.0.1", port_)) << "loopback itself is the program's";
  // For the record, and once.
  host_.finish();
  EXPECT_THAT(host_.requests(),
              ElementsAre(EgressRequest{EgressDoor::transparent, "denied.test", 0}));
}

TEST_F(DoorsTest, AddressOfTheListIsReachedAsItself) {
  const sys::UniqueFd socket = connect_tcp("127.65.0.7", port_);
  ASSERT_TRUE(socket);
  send_all(socket.get(), "x");
  shutdown(socket.get(), SHUT_WR);
  EXPECT_EQ(receive_all(socket.get()), "x");
  EXPECT_EQ(host_.requests().at(0).host, "127.65.0.7");
}

TEST_F(DoorsTest, RefusedConnectionOfTheTransparentDoorIsReset) {
  host_.set_answer({EgressCode::address_refused, "policy"});
  const sys::UniqueFd socket = connect_tcp("127.65.0.7", port_);
  ASSERT_TRUE(socket);
  EXPECT_EQ(receive_all(socket.get()), "<reset>");
}

// -- What breaks: neither side takes a part for the whole

bool is_broken_off(int socket) {
  pollfd entry{socket, 0, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & POLLHUP) != 0;
}

TEST_F(DoorsTest, TunnelThatTheHostBreaksOffIsResetForTheProgram) {
  host_.set_serve([](int socket) { send_all(socket, "a part"); });
  for (const bool by_proxy : {true, false}) {
    const sys::UniqueFd socket = by_proxy ? proxy() : connect_tcp("127.65.0.7", port_);
    if (by_proxy) send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
    EXPECT_THAT(receive_all(socket.get()), EndsWith("a part<reset>")) << by_proxy;
  }
  host_.set_serve([](int socket) {
    receive(socket, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"s.size());
    send_all(socket, "HTTP/1.1 200 OK\r\n\r\na part");
  });
  const sys::UniqueFd socket = proxy();
  send_all(socket.get(), "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n");
  EXPECT_THAT(receive_all(socket.get()), EndsWith("a part<reset>"));
}

TEST_F(DoorsTest, TunnelWhoseHostEndsItsDirectionEndsForTheProgram) {
  host_.set_serve([](int socket) {
    send_all(socket, "all of it");
    shutdown(socket, SHUT_WR);
    receive_all(socket);
  });
  const sys::UniqueFd socket = proxy();
  send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
  EXPECT_THAT(receive_all(socket.get()), EndsWith("\r\n\r\nall of it"));
}

TEST_F(DoorsTest, ProgramThatBreaksOffIsNoEndForTheHost) {
  std::promise<bool> ended;
  host_.set_serve([&](int socket) {
    receive_all(socket);
    ended.set_value(is_broken_off(socket));
  });
  {
    const sys::UniqueFd socket = proxy();
    send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
    receive(socket.get(), "HTTP/1.1 200 Connection established\r\n\r\n"s.size());
  }
  EXPECT_FALSE(ended.get_future().get()) << "it closed, having said all";
  std::promise<bool> broken;
  host_.set_serve([&](int socket) {
    receive_all(socket);
    broken.set_value(is_broken_off(socket));
  });
  {
    const sys::UniqueFd socket = proxy();
    send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\na part");
    receive(socket.get(), "HTTP/1.1 200 Connection established\r\n\r\n"s.size());
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  EXPECT_TRUE(broken.get_future().get());
}

// With a mark in the way of what comes behind it the doors would look at it all the time, too.
TEST_F(DoorsTest, UrgentDataIsPassedOnAndHoldsNothingUp) {
  host_.set_serve([](int socket) { send_all(socket, receive_all(socket)); });
  const sys::UniqueFd socket = proxy();
  send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
  receive(socket.get(), "HTTP/1.1 200 Connection established\r\n\r\n"s.size());
  send_all(socket.get(), "before");
  ASSERT_EQ(send(socket.get(), "!", 1, MSG_OOB | MSG_NOSIGNAL), 1);
  send_all(socket.get(), "behind");
  shutdown(socket.get(), SHUT_WR);
  EXPECT_EQ(receive_all(socket.get()), "before!behind");
}

// -- What a program has in its own network

sys::UniqueFd listen_everywhere(std::uint16_t port) {
  sys::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of("0.0.0.0", port);
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(socket.get(), 1), 0);
  return socket;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(DoorsTest, NameIsReachedAtThePortsThatNoProgramListensAt) {
  sys::UniqueFd own = listen_everywhere(other_port_);
  const std::string address = resolve("two.test");
  EXPECT_THAT(address, StartsWith("127.64."));
  const sys::UniqueFd socket = connect_tcp(address, one_port_);
  ASSERT_TRUE(socket);
  shutdown(socket.get(), SHUT_WR);
  EXPECT_EQ(receive_all(socket.get()), "");
  own.reset();
  EXPECT_FALSE(connect_tcp(address, other_port_));
  EXPECT_EQ(resolve("two.test"), address) << "its address stays its own";
  EXPECT_TRUE(connect_tcp(address, other_port_)) << "asked for again it is there";
}

TEST_F(DoorsTest, NameWhosePortsAProgramHasIsAskedForAgainAndLeavesNothingOpen) {
  sys::UniqueFd first = listen_everywhere(one_port_);
  sys::UniqueFd second = listen_everywhere(other_port_);
  EXPECT_EQ(resolve("two.test"), "code 2");
  const std::size_t before = open_descriptors();
  for (int turn = 0; turn < 100; ++turn) EXPECT_EQ(resolve("two.test"), "code 2");
  EXPECT_EQ(open_descriptors(), before);
  second.reset();
  EXPECT_THAT(resolve("two.test"), StartsWith("127.64."));
}

TEST_F(DoorsTest, ClientThatNoDescriptorIsLeftForIsTakenLaterAndNobodySpinsUntilThen) {
  const sys::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of("127.0.0.1", doors_->proxy_port());
  {
    const NoDescriptorLeft short_of_them;
    ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    const auto before = processor_time_of_thread(thread_.native_handle());
    let_pass(kSpinWatch);
    EXPECT_LT(processor_time_of_thread(thread_.native_handle()) - before, kNoSpin);
  }
  send_all(socket.get(), "nonsense\r\n\r\n");
  shutdown(socket.get(), SHUT_WR);
  EXPECT_THAT(receive_all(socket.get()), StartsWith("HTTP/1.1 400"));
}

TEST_F(DoorsTest, TunnelCarriesMuchBothWaysAtOnce) {
  host_.set_serve([](int socket) {
    std::array<char, 4096> buffer;
    while (true) {
      const ssize_t got = recv(socket, buffer.data(), buffer.size(), 0);
      if (got <= 0) return;
      send_all(socket, {buffer.data(), static_cast<std::size_t>(got)});
    }
  });
  const sys::UniqueFd socket = proxy();
  send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
  receive(socket.get(), "HTTP/1.1 200 Connection established\r\n\r\n"s.size());
  std::string sent(8 << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761U >> 13);
  std::thread writer([&] {
    send_all(socket.get(), sent);
    shutdown(socket.get(), SHUT_WR);
  });
  const std::string got = receive_all(socket.get());
  writer.join();
  EXPECT_TRUE(got == sent) << got.size();
}

TEST_F(DoorsTest, ManyTunnelsAreOpenAtOnce) {
  constexpr std::size_t kTunnels = 100;
  std::atomic<std::size_t> open = 0;
  host_.set_serve([&](int socket) {
    ++open;
    send_all(socket, receive_all(socket));
  });
  std::vector<sys::UniqueFd> sockets;
  for (std::size_t i = 0; i < kTunnels; ++i) {
    sockets.push_back(proxy());
    send_all(sockets.back().get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n" + std::to_string(i));
  }
  for (std::size_t i = 0; i < kTunnels; ++i) {
    shutdown(sockets[i].get(), SHUT_WR);
    EXPECT_THAT(receive_all(sockets[i].get()), EndsWith("\r\n\r\n" + std::to_string(i)));
  }
  EXPECT_EQ(open, kTunnels);
}

}  // namespace
}  // namespace casemate::guest
