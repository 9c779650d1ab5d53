#include "casemate/sys/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "casemate/sys/error.h"

namespace casemate::sys {
namespace {

constexpr std::size_t kControlSpace = CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerMessage);

// An address and how much of it counts.
struct Address {
  sockaddr_un value{};
  socklen_t size = 0;
};

Address address_of(const std::string& text) {
  Address address;
  address.value.sun_family = AF_UNIX;
  if (text.empty() || text.size() >= sizeof address.value.sun_path) {
    throw_error(text.empty() ? EINVAL : ENAMETOOLONG, "socket address " + text);
  }
  std::memcpy(address.value.sun_path, text.data(), text.size());
  // A path ends with its NUL, a name without a path with its last byte.
  const std::size_t end = text.front() == '\0' ? text.size() : text.size() + 1;
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + end);
  return address;
}

bool is_refusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

void bind_to(int socket, const Address& address, const std::string& what) {
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address.value), address.size) != 0) {
    throw_errno("bind " + what);
  }
}

}  // namespace

UniqueFd make_stream_socket() {
  UniqueFd made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) throw_errno("socket");
  return made;
}

void bind_to_path(int socket, const std::string& path) { bind_to(socket, address_of(path), path); }

std::string bind_to_fresh_name(int socket) {
  // An address without a name: the kernel finds one (unix(7), "autobind").
  Address address;
  address.value.sun_family = AF_UNIX;
  address.size = sizeof address.value.sun_family;
  bind_to(socket, address, "a fresh name");
  socklen_t size = sizeof address.value;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.value), &size) != 0) {
    throw_errno("getsockname");
  }
  return {address.value.sun_path, size - offsetof(sockaddr_un, sun_path)};
}

void start_listening(int socket) {
  // Of one that does not listen yet the kernel says EINVAL; anything else somebody in front of it.
  if (accept4(socket, nullptr, nullptr, SOCK_CLOEXEC) < 0 && is_refusal(errno)) {
    throw_errno("accept4");
  }
  if (listen(socket, SOMAXCONN) != 0) throw_errno("listen");
}

UniqueFd accept_connection(int socket) {
  while (true) {
    UniqueFd connection(accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection || errno == EAGAIN) return connection;
    if (errno != EINTR && errno != ECONNABORTED) throw_errno("accept4");
  }
}

bool is_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

UniqueFd connect_to_address(const std::string& text) {
  const Address address = address_of(text);
  UniqueFd made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) throw_errno("socket");
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&address.value), address.size) != 0) {
    throw_errno("connect " + text);
  }
  return made;
}

void make_blocking(int socket, std::chrono::microseconds patience) {
  const int flags = fcntl(socket, F_GETFL);
  if (flags < 0 || fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) != 0) throw_errno("fcntl");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
  const timeval time{seconds.count(), (patience - seconds).count()};
  if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) != 0) {
    throw_errno("SO_RCVTIMEO");
  }
}

void shut_down(int socket) noexcept { shutdown(socket, SHUT_RDWR); }

std::pair<UniqueFd, UniqueFd> socket_pair(SocketType type) {
  std::array<int, 2> ends{};
  const int kind = type == SocketType::stream ? SOCK_STREAM : SOCK_SEQPACKET;
  if (socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends.data()) != 0) throw_errno("socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

namespace {

iovec part_of(std::span<const char> bytes) {
  return {const_cast<char*>(bytes.data()), bytes.size()};
}

std::size_t send_whole(int socket, const msghdr& message, Blocking blocking) {
  const int flags = MSG_NOSIGNAL | (blocking == Blocking::no ? MSG_DONTWAIT : 0);
  while (true) {
    const ssize_t sent = sendmsg(socket, &message, flags);
    if (sent > 0) return static_cast<std::size_t>(sent);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN && blocking == Blocking::no) return 0;
    throw_errno("sendmsg");
  }
}

}  // namespace

std::size_t send_message(int socket, std::span<const char> bytes, std::span<const int> descriptors,
                         Blocking blocking) {
  if (bytes.empty()) throw std::invalid_argument("send_message: no bytes");
  if (descriptors.size() > kMaxDescriptorsPerMessage) {
    throw std::invalid_argument("send_message: too many descriptors");
  }
  iovec vector = part_of(bytes);
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, kControlSpace> control{};
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return send_whole(socket, message, blocking);
}

std::size_t send_parts(int socket, std::span<const char> head, std::span<const char> body,
                       Blocking blocking) {
  if (head.empty()) throw std::invalid_argument("send_parts: no bytes");
  std::array<iovec, 2> parts{part_of(head), part_of(body)};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return send_whole(socket, message, blocking);
}

bool try_send(int socket, std::span<const char> bytes, Blocking blocking) noexcept try {
  const std::size_t sent = send_message(socket, bytes, {}, blocking);
  if (sent < bytes.size()) errno = EAGAIN;
  return sent == bytes.size();
} catch (const std::system_error& error) {
  errno = error.code().value();
  return false;
} catch (const std::invalid_argument&) {
  errno = EINVAL;
  return false;
}

ssize_t receive_patiently(int socket, msghdr& message, int flags) {
  for (bool was_reset = false;;) {
    const ssize_t got = recvmsg(socket, &message, flags);
    if (got >= 0) return got;
    // gVisor's kernel tells of it for ever.
    const bool again = errno == EINTR || (errno == ECONNRESET && !was_reset);
    if (!again) return got;
    was_reset |= errno == ECONNRESET;
  }
}

ReceivedMessage receive_message(int socket, std::span<char> buffer, Blocking blocking) {
  iovec vector{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, kControlSpace> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const int flags = MSG_CMSG_CLOEXEC | (blocking == Blocking::no ? MSG_DONTWAIT : 0);
  ReceivedMessage received;
  const ssize_t got = receive_patiently(socket, message, flags);
  if (got < 0) {
    if (errno == ECONNRESET) return received;
    if (errno != EAGAIN || blocking == Blocking::yes) throw_errno("recvmsg");
    received.would_block = true;
    return received;
  }
  received.bytes = static_cast<std::size_t>(got);
  received.truncated = (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  return received;
}

ReceivedBytes receive_bytes(int socket, std::span<char> buffer, Blocking blocking) {
  const int flags = blocking == Blocking::no ? MSG_DONTWAIT : 0;
  for (bool was_reset = false;;) {
    const ssize_t got = recv(socket, buffer.data(), buffer.size(), flags);
    if (got >= 0) return {.bytes = static_cast<std::size_t>(got)};
    if (errno == EAGAIN) return {.bytes = 0, .would_block = true};
    // As in `receive_patiently`.
    if (errno == ECONNRESET && was_reset) return {};
    was_reset |= errno == ECONNRESET;
    if (errno != EINTR && errno != ECONNRESET) throw_errno("recv");
  }
}

}  // namespace casemate::sys
