#pragma once

// One direction of a tunnel: bytes from one stream socket to another, without a copy where nobody
// has to look at them.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

struct PipePair {
  sys::UniqueFd read;
  sys::UniqueFd write;
};

// Empty pipes to be used again. A flow has one only while it holds bytes, so there are far fewer
// than tunnels.
class PipePool {
 public:
  // Nothing when the process has no descriptor left.
  std::optional<PipePair> take();
  // `pipe` must be empty.
  void give_back(PipePair pipe);

 private:
  std::vector<PipePair> idle_;
};

class Flow {
 public:
  enum class State : unsigned char {
    moving,
    // The source ended and the sink was told.
    done,
    // One of the two is broken: both directions are over.
    failed,
  };
  // Looks at what the source said, no bytes once it has ended, and returns what the sink gets of
  // it. With `end` the sink gets nothing behind that; nothing returned is what breaks the tunnel.
  using Filter = std::function<std::optional<std::string>(std::string_view bytes, bool& end)>;

  // The sockets are borrowed and non-blocking. The process must ignore SIGPIPE. Urgent data moves
  // like any other, where the source has SO_OOBINLINE.
  Flow(int from, int to) : from_(from), to_(to) {}

  // Goes before whatever the source says.
  void put(std::string_view bytes) { queued_ += bytes; }
  // From now on bytes pass through it; none: they are spliced.
  void filter_by(Filter filter) { filter_ = std::move(filter); }
  bool filtered() const { return static_cast<bool>(filter_); }

  // Asked once the source has ended and its bytes have gone, before the sink is told: whether that
  // is the end. If not, the flow fails.
  using EndCheck = std::function<bool()>;
  void check_end_by(EndCheck check) { is_end_ = std::move(check); }

  // Moves what can be moved now, at most a quarter of a MiB, so that others get their turn.
  State pump(PipePool& pipes);

  State state() const { return state_; }
  // What it waits for, after `pump`.
  bool wants_source() const { return state_ == State::moving && wants_source_; }
  bool wants_sink() const { return state_ == State::moving && wants_sink_; }

 private:
  enum class Step : unsigned char { went_on, waits, failed };
  Step send_queued();
  Step send_piped();
  Step read_filtered();
  Step fill_pipe(PipePool& pipes);
  Step read_by_hand();
  Step after_error(bool& waits_for);
  void give_back_pipe(PipePool& pipes);

  int from_;
  int to_;
  std::string queued_;
  std::optional<PipePair> pipe_;
  std::size_t piped_ = 0;
  Filter filter_;
  EndCheck is_end_;
  State state_ = State::moving;
  bool source_ended_ = false;
  bool wants_source_ = false;
  bool wants_sink_ = false;
};

}  // namespace casemate::guest
