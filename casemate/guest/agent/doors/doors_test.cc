// The doors over real sockets, on loopback addresses that need no right, against a host of the
// test's that says what it is told.

#include "casemate/guest/agent/doors/doors.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "tests/support/own_network.h"
#include "tests/support/scratch.h"

using namespace std::string_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

namespace casemate::guest {
namespace {

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  return address;
}

// -1 when it is refused.
sys::UniqueFd connect_tcp(const std::string& host, std::uint16_t port) {
  sys::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(host, port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

// Where nobody else has a port, if this user may make it.
[[maybe_unused]] const auto* const kNetwork = testing::AddGlobalTestEnvironment(new OwnNetwork);

// Each once, and below those that the kernel gives to whoever connects.
std::uint16_t free_port() {
  static std::uint16_t last = 10'000;
  return ++last;
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string receive(int socket, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = recv(socket, bytes.data(), size, MSG_WAITALL);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

std::string receive_all(int socket) {
  std::string all;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = recv(socket, buffer.data(), buffer.size(), 0);
    if (got <= 0) return got < 0 ? all + "<reset>" : all;
    all.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// Answers each request as `decide` says, and after `opened` does what `serve` does, a thread each.
class FakeHost {
 public:
  using Serve = std::function<void(int socket)>;

  explicit FakeHost(const std::string& path) : listener_(sys::make_stream_socket()) {
    sys::bind_to_path(listener_.get(), path);
    sys::start_listening(listener_.get());
    thread_ = std::thread([this] { run(); });
  }
  ~FakeHost() { finish(); }

  void set_answer(EgressAnswer answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  void set_serve(Serve serve) {
    const std::lock_guard lock(mutex_);
    serve_ = std::move(serve);
  }
  // Takes no more, and returns once everything was served.
  void finish() {
    if (!thread_.joinable()) return;
    sys::raise_event(stop_.get());
    thread_.join();
    for (std::thread& each : threads_) each.join();
  }
  std::vector<EgressRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void run() {
    while (true) {
      std::array<pollfd, 2> entries{{{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
      sys::poll_until(entries, std::nullopt);
      sys::UniqueFd socket = sys::accept_connection(listener_.get());
      if (!socket) {
        if (entries[1].revents != 0) return;
        continue;
      }
      sys::make_blocking(socket.get(), std::chrono::seconds(20));
      threads_.emplace_back([this, taken = std::move(socket)] { answer(taken.get()); });
    }
  }

  void answer(int socket) {
    const std::string head = receive(socket, kEgressLengthBytes);
    const auto length = egress_frame_length(
        std::span<const char, kEgressLengthBytes>(head.data(), kEgressLengthBytes));
    ASSERT_TRUE(length);
    const auto request = decode_egress_request(receive(socket, *length));
    ASSERT_TRUE(request);
    EgressAnswer answer;
    Serve serve;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
      answer = answer_;
      serve = serve_;
    }
    send_all(socket, encode_egress(answer));
    if (answer.code == EgressCode::opened) serve(socket);
  }

  sys::UniqueFd listener_;
  sys::UniqueFd stop_ = sys::make_event();
  std::thread thread_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  EgressAnswer answer_{};
  Serve serve_ = [](int socket) { send_all(socket, receive_all(socket)); };
  std::vector<EgressRequest> requests_;
};

class DoorsTest : public ::testing::Test {
 protected:
  DoorsTest() {
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    doors_ = std::make_unique<Doors>(
        DoorOptions{.rules = {{EgressDoorRule::Form::name, "allowed.test", {port_}},
                              {EgressDoorRule::Form::name, "two.test", two_ports()},
                              {EgressDoorRule::Form::ipv4, "127.65.0.7", {port_}}},
                    .addresses = kLoopbackAddresses,
                    .host_path = path_,
                    .resolver_port = resolver_port_});
    thread_ = std::thread([this] { doors_->run(stop_.get()); });
  }
  ~DoorsTest() override {
    sys::raise_event(stop_.get());
    thread_.join();
  }

  // Ascending, as rules have them.
  std::vector<std::uint16_t> two_ports() const {
    return {std::min(one_port_, other_port_), std::max(one_port_, other_port_)};
  }

  sys::UniqueFd proxy() { return connect_tcp("127.0.0.1", doors_->proxy_port()); }
  std::string talk(std::string_view bytes) {
    const sys::UniqueFd socket = proxy();
    send_all(socket.get(), bytes);
    shutdown(socket.get(), SHUT_WR);
    return receive_all(socket.get());
  }

  // The address of a name, or its code.
  std::string resolve(std::string_view name, bool over_tcp = false) {
    std::string query = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"s;
    while (!name.empty()) {
      const std::size_t dot = std::min(name.find('.'), name.size());
      query += static_cast<char>(dot);
      query += name.substr(0, dot);
      name.remove_prefix(std::min(dot + 1, name.size()));
    }
    query += "\0\0\x01\0\x01"s;
    std::string answer;
    if (over_tcp) {
      const sys::UniqueFd socket = connect_tcp("127.0.0.1", resolver_port_);
      send_all(socket.get(), "\0"s + static_cast<char>(query.size()) + query);
      const std::string length = receive(socket.get(), 2);
      answer = receive(socket.get(), static_cast<unsigned char>(length.at(1)));
    } else {
      const sys::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = address_of("127.0.0.1", resolver_port_);
      EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
                0);
      send_all(socket.get(), query);
      answer.resize(512);
      const ssize_t got = recv(socket.get(), answer.data(), answer.size(), 0);
      answer.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    }
    if (answer.size() < 12) return "none";
    if ((answer[3] & 0xf) != 0) return "code " + std::to_string(answer[3] & 0xf);
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, answer.data() + answer.size() - 4, text.data(), text.size());
    return text.data();
  }

  Scratch scratch_;
  std::string path_ = scratch_.path() / "host.sock";
  std::uint16_t port_ = free_port();
  std::uint16_t one_port_ = free_port();
  std::uint16_t other_port_ = free_port();
  std::uint16_t resolver_port_ = free_port();
  FakeHost host_{path_};
  sys::UniqueFd stop_ = sys::make_event();
  std::unique_ptr<Doors> doors_;
  std::thread thread_;
};

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

TEST_F(DoorsTest, ConnectMakesATunnelAlsoForWhatWasSaidAhead) {
  EXPECT_EQ(talk("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\nahead"),
            "HTTP/1.1 200 Connection established\r\n\r\nahead");
  EXPECT_THAT(host_.requests(),
              ElementsAre(EgressRequest{EgressDoor::http_connect, "a.test", 443}));
}

TEST_F(DoorsTest, TunnelIsHalfClosedEitherWay) {
  host_.set_serve([](int socket) {
    send_all(socket, "all of it");
    shutdown(socket, SHUT_WR);
    EXPECT_EQ(receive_all(socket), "late");
  });
  const sys::UniqueFd socket = proxy();
  send_all(socket.get(), "CONNECT a.test:443 HTTP/1.0\r\n\r\n");
  EXPECT_THAT(receive_all(socket.get()), EndsWith("\r\n\r\nall of it"));
  send_all(socket.get(), "late");
  shutdown(socket.get(), SHUT_WR);
  host_.finish();
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

TEST_F(DoorsTest, DenialSaysThatItIsPolicy) {
  host_.set_answer({EgressCode::not_on_list, "denied.test is not on the list: policy"});
  const std::string answer =
      talk("CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 Forbidden by the policy of this sandbox\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\ndenied.test is not on the list: policy\n"));
  EXPECT_THAT(talk("GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
}

// EG-02: the target is what is decided, and its refusal comes before that of another Host.
TEST_F(DoorsTest, TargetIsAskedForWhateverHostSays) {
  host_.set_answer({EgressCode::not_on_list, "policy"});
  EXPECT_THAT(talk("CONNECT denied.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(host_.requests().at(0).host, "denied.test");
  EXPECT_THAT(talk("CONNECT allowed.test:" + std::to_string(port_) +
                   " HTTP/1.1\r\nHost: other.test\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(host_.requests().size(), 1U);
}

TEST_F(DoorsTest, OtherFailuresHaveTheirStatus) {
  const std::string request = "CONNECT a.test:443 HTTP/1.0\r\n\r\n";
  host_.set_answer({EgressCode::unreachable, "no"});
  EXPECT_THAT(talk(request), StartsWith("HTTP/1.1 502 "));
  host_.set_answer({EgressCode::too_slow, "no"});
  EXPECT_THAT(talk(request), StartsWith("HTTP/1.1 504 "));
  host_.set_answer({EgressCode::malformed, "no"});
  EXPECT_THAT(talk(request), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(talk("BREW\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(DoorsTest, PlainRequestGoesAloneAndItsAnswerEndsTheConnection) {
  std::string heard;
  host_.set_serve([&](int socket) {
    heard = receive(socket,
                    "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n"
                    "Connection: close\r\n\r\nhello"s.size());
    send_all(socket, "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
    shutdown(socket, SHUT_WR);
    heard += receive_all(socket);
  });
  // EG-04, EG-06: what hides behind the first request goes nowhere.
  const std::string answer = talk(
      "POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
      "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n");
  EXPECT_EQ(answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
  host_.finish();
  EXPECT_EQ(heard,
            "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
            "hello");
  EXPECT_EQ(host_.requests().size(), 1U);
}

TEST_F(DoorsTest, ChunkedBodyIsHeldToItsForm) {
  host_.set_serve([](int socket) { static_cast<void>(receive_all(socket)); });
  EXPECT_THAT(talk("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(DoorsTest, ServerThatSaysNothingOrNoHttpIsABadGateway) {
  host_.set_serve([](int) {});
  EXPECT_THAT(talk("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"),
              StartsWith("HTTP/1.1 502 "));
  host_.set_serve([](int socket) { send_all(socket, "SSH-2.0-x\r\n\r\n"); });
  EXPECT_THAT(talk("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"),
              StartsWith("HTTP/1.1 502 "));
}

TEST_F(DoorsTest, SocksReachesAName) {
  EXPECT_EQ(talk("\x05\x01\0\x05\x01\0\x03\x06"s + "a.test" + "\x01\xbb"s + "ahead"),
            "\x05\0\x05\0\0\x01\0\0\0\0\0\0"s + "ahead");
  EXPECT_THAT(host_.requests(), ElementsAre(EgressRequest{EgressDoor::socks, "a.test", 443}));
}

TEST_F(DoorsTest, SocksRefusesWhatItDoesNotDo) {
  const std::string greeting = "\x05\x01\0"s;
  const std::string end = "\x01\xbb"s;
  EXPECT_EQ(talk("\x04\x01\0\x50\x7f\0\0\x01\0"s).substr(0, 2), "\0\x5b"s) << "SOCKS4";
  EXPECT_EQ(talk("\x05\x01\x02"s), "\x05\xff"s) << "only with a password";
  EXPECT_EQ(talk(greeting + "\x05\x02\0\x03\x01"s + "a" + end).substr(2, 2), "\x05\x07"s) << "BIND";
  EXPECT_EQ(talk(greeting + "\x05\x03\0\x03\x01"s + "a" + end).substr(2, 2), "\x05\x07"s) << "UDP";
  EXPECT_EQ(talk(greeting + "\x05\x01\0\x03\x03"s + "a\0b"s + end).substr(2, 2), "\x05\x01"s);
  EXPECT_TRUE(host_.requests().empty());
  host_.set_answer({EgressCode::not_on_list, "policy"});
  EXPECT_EQ(talk(greeting + "\x05\x01\0\x03\x01"s + "a" + end).substr(2, 2), "\x05\x02"s);
}

// EG-26
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
