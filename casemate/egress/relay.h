#pragma once

// Bytes from one socket to another without passing through our memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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
  // Of those that are kept.
  void keep_at_most(std::size_t count);

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
    // One of the ends is broken, or the bound is used up. So is a source that is gone altogether
    // though the opposite direction has not ended: it has not said all.
    broken,
  };

  // `opposite` is borrowed; nullptr: there is none.
  explicit Relay(const Relay* opposite = nullptr) : opposite_(opposite) {}

  // Goes out before anything that is read: what was taken from the source already. Only before the
  // first `run`.
  void put_first(std::string bytes) { held_ = std::move(bytes); }

  // Moves what can be moved without waiting, at most about `turn` bytes, and never more than
  // `left`, which several relays may share: what is taken from a source is taken off it at once, so
  // that no two count on the same rest. Urgent data moves like any other, where the ends have
  // SO_OOBINLINE.
  State run(RelayEnd& from, RelayEnd& to, RelayPipes& pipes, std::size_t turn, std::uint64_t& left);

  // Delivered so far.
  std::uint64_t bytes() const { return bytes_; }
  // Taken off `left`, and not delivered yet.
  std::uint64_t under_way() const { return in_pipe_ + (counted_ ? held_.size() : 0); }
  // All that came has gone, and the destination was told.
  bool ended() const { return ended_; }
  // Of `broken`: there was more, and nothing left.
  bool over_bound() const { return over_bound_; }
  // Of `broken`: the source is gone altogether.
  bool source_gone() const { return source_gone_; }

 private:
  bool send_held(RelayEnd& to, std::uint64_t& left);
  bool fill(RelayEnd& from, RelayPipes& pipes, std::uint64_t& left);
  bool fill_by_hand(RelayEnd& from, std::uint64_t& left);
  bool fill_nothing(RelayEnd& from);
  bool source_broke_off(const RelayEnd& from);
  bool drain(RelayEnd& to, RelayPipes& pipes);

  const Relay* opposite_;
  // Goes out first, and whether it was taken off what is left.
  std::string held_;
  bool counted_ = false;
  RelayPipes::Pipe pipe_;
  std::size_t in_pipe_ = 0;
  std::uint64_t bytes_ = 0;
  bool source_ended_ = false;
  bool ended_ = false;
  bool over_bound_ = false;
  bool source_gone_ = false;
};

}  // namespace casemate
