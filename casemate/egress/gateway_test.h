#pragma once

// For tests: servers to reach and a door that says exactly what it is told to.

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "casemate/core/egress_frame.h"
#include "casemate/egress/ip_address.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

// A blocking stream socket; nothing here waits longer than a test may hang.
class Stream {
 public:
  explicit Stream(sys::UniqueFd socket) : socket_(std::move(socket)) {
    sys::make_blocking(socket_.get(), std::chrono::seconds(30));
  }

  int fd() const { return socket_.get(); }
  // False: the other side is gone.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Exactly so many, or what came before the end.
  std::string read(std::size_t count) const {
    std::string bytes(count, '\0');
    std::size_t have = 0;
    while (have < count) {
      const ssize_t got = recv(socket_.get(), bytes.data() + have, count - have, 0);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }
  // Up to the end, however it comes.
  std::string read_all() const {
    std::string bytes;
    for (std::string piece = read(1 << 16); !piece.empty(); piece = read(1 << 16)) bytes += piece;
    return bytes;
  }
  void end_sending() const { shutdown(socket_.get(), SHUT_WR); }

 private:
  sys::UniqueFd socket_;
};

// Listens at one address and hands every connection to `serve`, on a thread of its own. Its end
// takes the connections that are there, hears what they have sent, and ends them.
class Origin {
 public:
  using Serve = std::function<void(const Stream&)>;

  Origin(const char* address, std::uint16_t port, Serve serve) : serve_(std::move(serve)) {
    const IpAddress ip = IpAddress::parse(address).value();
    const bool ipv4 = ip.family == IpAddress::Family::ipv4;
    listener_.reset(
        socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in six_free{};
    sockaddr_in6 six{};
    six_free.sin_family = AF_INET;
    six_free.sin_port = htons(port);
    std::memcpy(&six_free.sin_addr, ip.bytes.data(), sizeof six_free.sin_addr);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, ip.bytes.data(), sizeof six.sin6_addr);
    sockaddr* const name =
        ipv4 ? reinterpret_cast<sockaddr*>(&six_free) : reinterpret_cast<sockaddr*>(&six);
    socklen_t size = ipv4 ? sizeof six_free : sizeof six;
    if (bind(listener_.get(), name, size) != 0) sys::throw_errno("bind");
    if (listen(listener_.get(), SOMAXCONN) != 0) sys::throw_errno("listen");
    if (getsockname(listener_.get(), name, &size) != 0) sys::throw_errno("getsockname");
    port_ = ntohs(ipv4 ? six_free.sin_port : six.sin6_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Origin() {
    sys::raise_event(stopped_.get());
    thread_.join();
    for (Served& served : served_) {
      sys::shut_down(served.stream.fd());
      served.thread.join();
    }
  }

  std::uint16_t port() const { return port_; }
  int connections() const { return connections_; }

 private:
  struct Served {
    Stream stream;
    std::thread thread{};
  };

  void run() {
    bool stopped = false;
    while (!stopped) {
      std::array<pollfd, 2> entries{pollfd{stopped_.get(), POLLIN, 0},
                                    pollfd{listener_.get(), POLLIN, 0}};
      sys::poll_until(entries, std::nullopt);
      stopped = entries[0].revents != 0;
      // At the end those that are there already are heard, too.
      while (sys::UniqueFd connection = sys::accept_connection(listener_.get())) {
        ++connections_;
        Served& served = served_.emplace_back(Stream(std::move(connection)));
        served.thread = std::thread([this, &served] {
          serve_(served.stream);
          shutdown(served.stream.fd(), SHUT_RDWR);
        });
      }
    }
  }

  Serve serve_;
  sys::UniqueFd listener_;
  sys::UniqueFd stopped_ = sys::make_event();
  std::uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::list<Served> served_;
  std::thread thread_;
};

// Sends back what comes, and the end when it comes.
inline void echo(const Stream& stream) {
  std::array<char, 1 << 16> buffer;
  while (true) {
    const ssize_t got = recv(stream.fd(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return;
    if (!stream.send({buffer.data(), static_cast<std::size_t>(got)})) return;
  }
}

class Door : public Stream {
 public:
  explicit Door(const std::string& address) : Stream(sys::connect_to_address(address)) {}

  // Nothing: the host closed without one.
  std::optional<EgressAnswer> ask(const std::string& host, std::uint16_t port,
                                  std::string_view behind = "") const {
    send(encode_egress(EgressRequest{EgressDoor::transparent, host, port}) + std::string(behind));
    return answer();
  }
  std::optional<EgressAnswer> answer() const {
    const std::string head = read(kEgressLengthBytes);
    if (head.size() < kEgressLengthBytes) return std::nullopt;
    const auto length = egress_frame_length(std::span<const char, 2>(head.data(), 2));
    return length ? decode_egress_answer(read(*length)) : std::nullopt;
  }
  EgressCode code(const std::string& host, std::uint16_t port) const {
    const auto said = ask(host, port);
    return said ? said->code : static_cast<EgressCode>(0xff);
  }
};

}  // namespace casemate
