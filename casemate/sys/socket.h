#pragma once

// Unix sockets and the descriptors that travel over them. No call here raises SIGPIPE.

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

enum class SocketType { stream, seqpacket };

// Two connected, close-on-exec, blocking sockets. Throws `std::system_error`.
std::pair<UniqueFd, UniqueFd> socket_pair(SocketType type);

// The kernel's own bound is 253 descriptors a message; nothing here needs more than these.
inline constexpr std::size_t kMaxDescriptorsPerMessage = 16;

enum class Blocking { no, yes };

// A close-on-exec, non-blocking Unix stream socket with no address yet. Throws `std::system_error`.
UniqueFd make_stream_socket();

// Gives a socket its path, which must not exist. Whoever may write to what then stands there may
// connect. Throws `std::system_error`; ENAMETOOLONG for a path over the kernel's 107 bytes.
void bind_to_path(int socket, const std::string& path);
// Gives a socket a fresh name that no path leads to, and returns it; it begins with a NUL.
std::string bind_to_fresh_name(int socket);

// Takes connections from now on. Throws `std::system_error`, also where `accept_connection` would
// be refused: whoever comes then would wait for ever.
void start_listening(int socket);
// The next connection of a non-blocking listening socket, close-on-exec and non-blocking; empty
// when there is none. Throws `std::system_error`.
UniqueFd accept_connection(int socket);
// Whether a call failed with that for want of what others may give back. After `accept4` the
// connection goes on waiting, and the socket is readable all the time.
bool is_shortage(int error) noexcept;
// A blocking connection to a path, or to a name that begins with a NUL. Throws `std::system_error`.
UniqueFd connect_to_address(const std::string& address);

// Has `Blocking::yes` wait on this socket, and receive for at most `patience` (rounded up to the
// kernel's clock). Throws `std::system_error`.
void make_blocking(int socket, std::chrono::microseconds patience);

// Ends a connection in both directions, for every process that holds it.
void shut_down(int socket) noexcept;

// Sends at least one byte of `bytes` (all of them on a seqpacket socket), the descriptors with the
// first one. Returns how many bytes went; 0 only for `Blocking::no` when nothing fits, and then no
// descriptor was sent either. Throws `std::system_error` (EPIPE and ECONNRESET when the peer is
// gone), `std::invalid_argument` for no bytes or too many descriptors.
std::size_t send_message(int socket, std::span<const char> bytes, std::span<const int> descriptors,
                         Blocking blocking);

// The same of `head` and, behind it, `body`, which may be empty; without descriptors.
std::size_t send_parts(int socket, std::span<const char> head, std::span<const char> body,
                       Blocking blocking);

// One message without descriptors; false, with errno, where it did not go whole. By sendmsg, as
// everything is sent here: a filter that refuses that is met by whoever asks first, who can say so,
// and not by whoever would answer.
bool try_send(int socket, std::span<const char> bytes, Blocking blocking) noexcept;
// The same of a value as it lies in memory.
template <typename T>
  requires std::is_trivially_copyable_v<T>
bool try_send_value(int socket, const T& value, Blocking blocking = Blocking::yes) noexcept {
  return try_send(socket, {reinterpret_cast<const char*>(&value), sizeof value}, blocking);
}

struct ReceivedMessage {
  // 0 with `!would_block`: the peer closed.
  std::size_t bytes = 0;
  bool would_block = false;
  // The sender's message or descriptors did not fit; what did not is lost, what did is here.
  bool truncated = false;
  // Close-on-exec from birth.
  std::vector<UniqueFd> descriptors;
};

// As recvmsg(2), which is tried again after a signal, and once after a reset: Linux tells of that
// before what the peer had sent, where it ended with something of ours unread.
ssize_t receive_patiently(int socket, msghdr& message, int flags);

// Receives up to `buffer.size()` bytes and the descriptors that came with them. A reset by the peer
// reads as closed, after all that it had sent. Throws `std::system_error`.
ReceivedMessage receive_message(int socket, std::span<char> buffer, Blocking blocking);

// The same for a peer whose descriptors nobody wants: the kernel closes them.
struct ReceivedBytes {
  // 0 with `!would_block`: the peer closed.
  std::size_t bytes = 0;
  // Also: nothing came within the socket's patience.
  bool would_block = false;
};
ReceivedBytes receive_bytes(int socket, std::span<char> buffer, Blocking blocking);

}  // namespace casemate::sys
