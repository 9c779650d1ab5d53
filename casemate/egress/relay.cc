#include "casemate/egress/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "casemate/sys/error.h"

namespace casemate {
namespace {

// What Linux gives a pipe; more would count against a user's whole allowance (pipe(7)).
constexpr std::size_t kPipeBytes = 64 * 1024;
constexpr std::size_t kMaxSpare = 16;
constexpr std::size_t kByHand = 4 * 1024;

bool would_block() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

RelayPipes::Pipe RelayPipes::take() {
  if (!spare_.empty()) {
    Pipe pipe = std::move(spare_.back());
    spare_.pop_back();
    return pipe;
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) sys::throw_errno("pipe2");
  return {sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

void RelayPipes::give(Pipe pipe) {
  if (pipe.out && spare_.size() < kMaxSpare) spare_.push_back(std::move(pipe));
}

void RelayPipes::keep_at_most(std::size_t count) {
  if (spare_.size() > count) spare_.resize(count);
}

Relay::State Relay::run(RelayEnd& from, RelayEnd& to, RelayPipes& pipes, std::size_t turn,
                        std::uint64_t& left) {
  if (ended_) return State::ended;
  const std::uint64_t until = bytes_ + turn;
  while (true) {
    if (!held_.empty()) {
      if (!to.writable) return State::waits;
      if (!send_held(to, left)) return State::broken;
      continue;
    }
    if (in_pipe_ > 0) {
      if (!to.writable) return State::waits;
      if (!drain(to, pipes)) return State::broken;
      continue;
    }
    if (source_ended_) {
      if (source_broke_off(from)) return State::broken;
      // An end that is gone altogether is told nothing.
      shutdown(to.socket.get(), SHUT_WR);
      ended_ = true;
      return State::ended;
    }
    if (!from.readable) return State::waits;
    if (bytes_ >= until) return State::more;
    if (!(left > 0 ? fill(from, pipes, left) : fill_nothing(from))) return State::broken;
  }
}

bool Relay::send_held(RelayEnd& to, std::uint64_t& left) {
  if (!counted_) {
    over_bound_ = held_.size() > left;
    if (over_bound_) return false;
    left -= held_.size();
    counted_ = true;
  }
  const ssize_t sent =
      send(to.socket.get(), held_.data(), held_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (!would_block()) return false;
    to.writable = errno == EINTR;
    return true;
  }
  bytes_ += static_cast<std::uint64_t>(sent);
  held_.erase(0, static_cast<std::size_t>(sent));
  if (held_.empty()) held_.shrink_to_fit();
  return true;
}

// The pipe is empty before, so it is the source that has no more when nothing comes.
bool Relay::fill(RelayEnd& from, RelayPipes& pipes, std::uint64_t& left) {
  if (!pipe_.out) pipe_ = pipes.take();
  const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(kPipeBytes, left));
  const ssize_t moved = splice(from.socket.get(), nullptr, pipe_.in.get(), nullptr, most,
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (moved > 0) {
    in_pipe_ = static_cast<std::size_t>(moved);
    left -= in_pipe_;
    return true;
  }
  const bool nothing = moved == 0 || errno == EAGAIN;
  const bool failed = moved < 0 && !would_block();
  pipes.give(std::exchange(pipe_, {}));
  if (nothing) return fill_by_hand(from, left);
  return !failed;
}

// Splice stops at the mark of urgent data, and says for ever that nothing is there, or that this is
// the end; recv goes past it.
bool Relay::fill_by_hand(RelayEnd& from, std::uint64_t& left) {
  std::array<char, kByHand> buffer;
  const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), left));
  const ssize_t got = recv(from.socket.get(), buffer.data(), most, MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EAGAIN) from.readable = false;
    return would_block();
  }
  if (got == 0) source_ended_ = true;
  held_.assign(buffer.data(), static_cast<std::size_t>(got));
  counted_ = true;
  left -= held_.size();
  return true;
}

bool Relay::source_broke_off(const RelayEnd& from) {
  if (opposite_ == nullptr || opposite_->ended()) return false;
  pollfd entry{from.socket.get(), 0, 0};
  source_gone_ = poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
  return source_gone_;
}

// With nothing left only the end is welcome.
bool Relay::fill_nothing(RelayEnd& from) {
  char next = 0;
  const ssize_t there = recv(from.socket.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  if (there == 0) source_ended_ = true;
  if (there < 0 && errno == EAGAIN) from.readable = false;
  over_bound_ = there > 0;
  return there == 0 || (there < 0 && would_block());
}

bool Relay::drain(RelayEnd& to, RelayPipes& pipes) {
  const ssize_t moved = splice(pipe_.out.get(), nullptr, to.socket.get(), nullptr, in_pipe_,
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (moved <= 0) {
    if (moved == 0 || !would_block()) return false;
    to.writable = errno == EINTR;
    return true;
  }
  in_pipe_ -= static_cast<std::size_t>(moved);
  bytes_ += static_cast<std::uint64_t>(moved);
  if (in_pipe_ == 0) pipes.give(std::exchange(pipe_, {}));
  return true;
}

}  // namespace casemate
