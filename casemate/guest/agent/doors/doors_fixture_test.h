#pragma once

// For tests: the doors over real sockets, on loopback addresses that need no right, against a host
// that says what it is told.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/egress_frame.h"
#include "casemate/guest/agent/doors/doors.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/own_network.h"
#include "tests/support/scratch.h"

namespace casemate::guest {

inline sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  return address;
}

// -1 when it is refused.
inline sys::UniqueFd connect_tcp(const std::string& host, std::uint16_t port) {
  sys::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(host, port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

// Where nobody else has a port, if this user may make it.
inline const auto* const kNetwork = testing::AddGlobalTestEnvironment(new OwnNetwork);

// Each once, and below those that the kernel gives to whoever connects.
inline std::uint16_t free_port() {
  static std::uint16_t last = 10'000;
  return ++last;
}

inline void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

inline std::string receive(int socket, std::size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = recv(socket, bytes.data(), size, MSG_WAITALL);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

inline std::string receive_all(int socket) {
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
    std::string query = std::string("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    while (!name.empty()) {
      const std::size_t dot = std::min(name.find('.'), name.size());
      query += static_cast<char>(dot);
      query += name.substr(0, dot);
      name.remove_prefix(std::min(dot + 1, name.size()));
    }
    query += std::string("\0\0\x01\0\x01", 5);
    std::string answer;
    if (over_tcp) {
      const sys::UniqueFd socket = connect_tcp("127.0.0.1", resolver_port_);
      send_all(socket.get(), std::string(1, '\0') + static_cast<char>(query.size()) + query);
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

}  // namespace casemate::guest
