#pragma once

// Bytes from one socket to another without passing through our memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate {

// One end of a tunnel: a non-blocking stream socket and what an edge-triggered wait said of it. The
// flags are set by whoever waits and cleared here, when the kernel says that there is no more.
struct RelayEnd {
  sys::UniqueFd socket{};
  bool readable = false;
  bool writable = false;
};

// Pipes to splice through. A direction has one only while bytes are in it, so an idle tunnel costs
// none. For one thread.
class RelayPipes {
 public:
  struct Pipe {
    sys::UniqueFd out{};
    sys::UniqueFd in{};
  };

  // Throws `std::system_error`.
  Pipe take();
  // An empty one; kept for the next, or closed.
  void give(Pipe pipe);

 private:
  std::vector<Pipe> spare_;
};

// One direction of a tunnel.
class Relay {
 public:
  enum class State : std::uint8_t {
    // Nothing moves before one of the ends is ready.
    waits,
    // It stopped to let others have their turn.
    more,
    // The source ended, all it sent has gone, and the destination was told (SHUT_WR).
    ended,
    // One of the ends is broken, or the bound is used up.
    broken,
  };

  // Goes out before anything that is read: what was taken from the source already. Only before the
  // first `run`.
  void put_first(std::string bytes);

  // Moves what can be moved without waiting, at most about `turn` bytes, and never more than
  // `left`, which several directions may share: what went is taken off it.
  State run(RelayEnd& from, RelayEnd& to, RelayPipes& pipes, std::size_t turn, std::uint64_t& left);

  // Delivered so far.
  std::uint64_t bytes() const { return bytes_; }
  // Of `broken`: there was more, and nothing left.
  bool over_bound() const { return over_bound_; }

 private:
  bool send_first(RelayEnd& to, std::uint64_t& left);
  bool fill(RelayEnd& from, RelayPipes& pipes, std::uint64_t left);
  bool fill_nothing(RelayEnd& from);
  bool drain(RelayEnd& to, RelayPipes& pipes, std::uint64_t& left);

  std::string first_;
  RelayPipes::Pipe pipe_;
  std::size_t in_pipe_ = 0;
  std::uint64_t bytes_ = 0;
  bool source_ended_ = false;
  bool ended_ = false;
  bool over_bound_ = false;
};

}  // namespace casemate
