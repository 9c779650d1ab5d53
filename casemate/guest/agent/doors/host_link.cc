#include "casemate/guest/agent/doors/host_link.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace casemate::guest {

HostLink::HostLink(std::string path, const EgressRequest& request)
    : path_(std::move(path)), request_(encode_egress(request)) {}

HostLink::State HostLink::advance() {
  if (state_ == State::no_room) state_ = connect_and_ask();
  if (state_ == State::asked) state_ = read_answer();
  return state_;
}

HostLink::State HostLink::connect_and_ask() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) return State::failed;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  sys::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return State::no_room;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno == EAGAIN || errno == EINTR ? State::no_room : State::failed;
  }
  // Far less than what an empty socket takes.
  const ssize_t sent = send(socket.get(), request_.data(), request_.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request_.size())) return State::failed;
  socket_ = std::move(socket);
  return State::asked;
}

// Up to `size` bytes in `frame_`, never more: what follows is the tunnel's. Whether they are there.
bool HostLink::receive(std::size_t size) {
  while (frame_.size() < size) {
    char buffer[kMaxEgressFrame + kEgressLengthBytes];
    const ssize_t got = recv(socket_.get(), buffer, size - frame_.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      state_ = State::failed;
      return false;
    }
    frame_.append(buffer, static_cast<std::size_t>(got));
  }
  return true;
}

HostLink::State HostLink::read_answer() {
  if (!receive(kEgressLengthBytes)) return state_;
  const auto length = egress_frame_length(
      std::span<const char, kEgressLengthBytes>(frame_.data(), kEgressLengthBytes));
  if (!length) return State::failed;
  if (!receive(kEgressLengthBytes + *length)) return state_;
  auto answer = decode_egress_answer(std::string_view(frame_).substr(kEgressLengthBytes));
  if (!answer) return State::failed;
  answer_ = std::move(*answer);
  return State::answered;
}

}  // namespace casemate::guest
