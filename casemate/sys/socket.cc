#include "casemate/sys/socket.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "casemate/sys/error.h"

namespace casemate::sys {
namespace {

constexpr std::size_t kControlSpace = CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerMessage);

}  // namespace

std::pair<UniqueFd, UniqueFd> socket_pair(SocketType type) {
  std::array<int, 2> ends{};
  const int kind = type == SocketType::stream ? SOCK_STREAM : SOCK_SEQPACKET;
  if (socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends.data()) != 0) throw_errno("socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::size_t send_message(int socket, std::span<const char> bytes, std::span<const int> descriptors,
                         Blocking blocking) {
  if (bytes.empty()) throw std::invalid_argument("send_message: no bytes");
  if (descriptors.size() > kMaxDescriptorsPerMessage) {
    throw std::invalid_argument("send_message: too many descriptors");
  }
  iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
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
  const int flags = MSG_NOSIGNAL | (blocking == Blocking::no ? MSG_DONTWAIT : 0);
  while (true) {
    const ssize_t sent = sendmsg(socket, &message, flags);
    if (sent > 0) return static_cast<std::size_t>(sent);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN && blocking == Blocking::no) return 0;
    throw_errno("sendmsg");
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
  while (true) {
    const ssize_t got = recvmsg(socket, &message, flags);
    if (got >= 0) {
      received.bytes = static_cast<std::size_t>(got);
      break;
    }
    if (errno == EINTR) continue;
    if (errno == ECONNRESET) return received;
    if (errno == EAGAIN && blocking == Blocking::no) {
      received.would_block = true;
      return received;
    }
    throw_errno("recvmsg");
  }
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

}  // namespace casemate::sys
