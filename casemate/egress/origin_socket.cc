#include "casemate/egress/origin_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace casemate {
namespace {

struct SocketAddress {
  sockaddr_storage value{};
  socklen_t size = 0;
};

SocketAddress socket_address(const IpAddress& address, std::uint16_t port) {
  SocketAddress made;
  if (address.family == IpAddress::Family::ipv4) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, address.bytes.data(), sizeof ipv4.sin_addr);
    std::memcpy(&made.value, &ipv4, sizeof ipv4);
    made.size = sizeof ipv4;
  } else {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, address.bytes.data(), sizeof ipv6.sin6_addr);
    std::memcpy(&made.value, &ipv6, sizeof ipv6);
    made.size = sizeof ipv6;
  }
  return made;
}

void set_option(int socket, int level, int option, int value) {
  static_cast<void>(setsockopt(socket, level, option, &value, sizeof value));
}

}  // namespace

sys::UniqueFd begin_to_connect(const IpAddress& address, std::uint16_t port, std::uint64_t buffer,
                               int& error_number) {
  const SocketAddress to = socket_address(address, port);
  sys::UniqueFd made(::socket(to.value.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made) {
    set_option(made.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    take_urgent_data_inline(made.get());
    bound_sent(made.get(), buffer);
    // Before the connection, whose window follows from it.
    set_option(made.get(), SOL_SOCKET, SO_RCVBUF, static_cast<int>(buffer));
    const int begun = connect(made.get(), reinterpret_cast<const sockaddr*>(&to.value), to.size);
    if (begun == 0 || errno == EINPROGRESS) return made;
  }
  error_number = errno;
  return {};
}

int pending_error(int socket) {
  int error_number = 0;
  socklen_t size = sizeof error_number;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &size) != 0) return errno;
  return error_number;
}

void bound_sent(int socket, std::uint64_t buffer) {
  set_option(socket, SOL_SOCKET, SO_SNDBUF, static_cast<int>(buffer));
}

void take_urgent_data_inline(int socket) { set_option(socket, SOL_SOCKET, SO_OOBINLINE, 1); }

// connect(2): an address without a family, for protocols that have connections.
void break_off(int socket) {
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  static_cast<void>(connect(socket, &nobody, sizeof nobody));
}

}  // namespace casemate
