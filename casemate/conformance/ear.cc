#include "casemate/conformance/ear.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "casemate/conformance/trial.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::conformance {
namespace {

using Way = Ear::Way;

constexpr std::string_view kOwn = "casemate: from the host itself";
constexpr std::chrono::seconds kPatience{15};

bool is_udp(Way way) { return way != Way::tcp_ipv6; }

struct Address {
  sockaddr_storage value{};
  socklen_t size = 0;
};

Address loopback(Way way, std::uint16_t port) {
  Address address;
  if (way == Way::udp_ipv4) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ipv4.sin_port = htons(port);
    std::memcpy(&address.value, &ipv4, sizeof ipv4);
    address.size = sizeof ipv4;
  } else {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_addr = in6addr_loopback;
    ipv6.sin6_port = htons(port);
    std::memcpy(&address.value, &ipv6, sizeof ipv6);
    address.size = sizeof ipv6;
  }
  return address;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.value);
}

sys::UniqueFd make_socket(Way way) {
  return sys::UniqueFd(
      socket(way == Way::udp_ipv4 ? AF_INET : AF_INET6,
             (is_udp(way) ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    sys::throw_errno("getsockname");
  }
  // In the same place for both families.
  sockaddr_in ipv4{};
  std::memcpy(&ipv4, &address, sizeof ipv4);
  return ntohs(ipv4.sin_port);
}

}  // namespace

Ear::Ear(Way way, sys::UniqueFd socket, std::uint16_t port)
    : way_(way),
      socket_(std::move(socket)),
      port_(port),
      place_(fmt::format("{} {} {}", is_udp(way) ? "udp" : "tcp",
                         way == Way::udp_ipv4 ? "127.0.0.1" : "::1", port)) {}

std::optional<Ear> Ear::listen(Way way) {
  sys::UniqueFd socket = make_socket(way);
  if (!socket && errno == EAFNOSUPPORT) return std::nullopt;
  if (!socket) sys::throw_errno("socket");
  const Address address = loopback(way, 0);
  if (bind(socket.get(), generic(address), address.size) != 0) {
    if (errno == EADDRNOTAVAIL) return std::nullopt;
    sys::throw_errno("bind");
  }
  if (!is_udp(way)) sys::start_listening(socket.get());
  const std::uint16_t port = port_of(socket.get());
  return Ear(way, std::move(socket), port);
}

bool Ear::heard() {
  const sys::UniqueFd own = make_socket(way_);
  if (!own) sys::throw_errno("socket");
  const Address address = loopback(way_, port_);
  if (is_udp(way_)) {
    sendto(own.get(), kOwn.data(), kOwn.size(), 0, generic(address), address.size);
  } else {
    connect(own.get(), generic(address), address.size);
  }
  const std::uint16_t own_port = port_of(own.get());
  bool others = false;
  while (true) {
    pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (sys::poll_until({&entry, 1}, sys::SteadyTime::clock::now() + kPatience) == 0) {
      throw Unmet("sending something to " + place_ + " from the host itself", "that it arrives",
                  "nothing");
    }
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto* const name = reinterpret_cast<sockaddr*>(&from);
    if (is_udp(way_)) {
      std::array<char, 64> bytes;
      if (recvfrom(socket_.get(), bytes.data(), bytes.size(), 0, name, &size) < 0) continue;
    } else if (const sys::UniqueFd caller(accept4(socket_.get(), name, &size, SOCK_CLOEXEC));
               !caller) {
      continue;
    }
    sockaddr_in sender{};
    std::memcpy(&sender, &from, sizeof sender);
    // A sandbox that shares the host's ports cannot have the one of our open socket.
    if (ntohs(sender.sin_port) == own_port) return others;
    others = true;
  }
}

}  // namespace casemate::conformance
