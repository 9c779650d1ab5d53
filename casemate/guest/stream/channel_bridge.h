#pragma once

// A multiplexed stream on one side, ordinary Unix sockets on the other: each channel is a socket,
// and whoever has its other end need not know. Used by both sides; what differs (who connects to
// what) is a subclass's.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/guest/stream/multiplexer.h"
#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// For one thread, which must have SIGPIPE blocked or ignored.
class ChannelBridge : private StreamEvents {
 public:
  ChannelBridge(const ChannelBridge&) = delete;
  ChannelBridge& operator=(const ChannelBridge&) = delete;

 protected:
  // A channel's socket, and what is on its way to it.
  struct Link {
    // Of a `token` whatever is held for it; empty when nothing is there (any more).
    sys::UniqueFd socket;
    ChannelKind kind = ChannelKind::stream;
    ChannelId related = 0;
    // As the edge-triggered wait said, until the kernel says that there is no more.
    bool readable = false;
    bool writable = false;
    // It was reported that the other end has ended, maybe with bytes before that.
    bool end_is_near = false;
    // In the queue of those that are to be read.
    bool queued = false;
    // Nothing more comes from the socket, or goes to it.
    bool read_ended = false;
    bool write_broken = false;
    // The channel's end came: the socket is told when everything has gone.
    bool ending = false;
    struct Chunk {
      std::string bytes;
      std::vector<sys::UniqueFd> descriptors;
    };
    std::deque<Chunk> chunks;
    std::size_t sent_of_first = 0;
    // For the next chunk.
    std::vector<sys::UniqueFd> carried;
  };

  ChannelBridge(StreamSide side, StreamEnd stream, std::uint32_t others_channels);
  ~ChannelBridge() override = default;

  // One turn: puts out what can be put out, waits for something to happen, and does what it asks
  // for. False when the stream is over. Throws `ProtocolError` when the other side broke the
  // protocol, `std::system_error` when the stream failed (EPIPE and ECONNRESET: the other side is
  // gone).
  bool turn();

  // Instead of a `turn`, once: ends every channel and says so to the other side, waiting until then
  // for the stream to take it. Throws as `turn`.
  void say_goodbye(sys::SteadyTime until);

  // What a subclass makes of the other side's acts, within `turn`.
  virtual void ready() {}
  virtual void opened(ChannelId channel, ChannelKind kind, ChannelId related) = 0;
  // The descriptor of `wake_by` is readable; told in each turn for as long as it is.
  virtual void woken() {}
  // Has one piece of what came to the socket sent, at most `multiplexer().room(channel)` bytes. The
  // default sends bytes as they are. True when there may be more.
  virtual bool read_link(ChannelId channel, Link& link);
  // A channel is over and its link gone.
  virtual void closed(ChannelId /*channel*/, ChannelKind /*kind*/) {}
  // The end of a channel without data came.
  virtual void end_without_data(ChannelId channel, Link& link);

  Multiplexer& multiplexer() { return multiplexer_; }
  // Null when there is none.
  Link* find(ChannelId channel);
  // Bridges an open channel. The socket is non-blocking from now on.
  Link& add(ChannelId channel, ChannelKind kind, ChannelId related, sys::UniqueFd socket);
  // Waits for the link's socket from now on, as `add` does where it is one that is connected.
  void watch_link(ChannelId channel, const Link& link);
  // Has `read_link` called when the stream has room.
  void queue(ChannelId channel, Link& link);
  // Ends and stops a channel from this side, whatever its link still had.
  void drop(ChannelId channel);
  // This side's direction of it ends, if it has not.
  void end_reading(ChannelId channel, Link& link);
  void wake_by(int event);
  // Links of that kind that are related to `channel`.
  std::vector<ChannelId> related_to(ChannelId channel, ChannelKind kind) const;
  // After the last `turn`: closes the stream and every link.
  void hang_up() noexcept;
  // So many channels of the other side may be open at a time.
  std::uint32_t others_limit() const { return others_limit_; }

 private:
  void on_ready() override { ready(); }
  void on_open(ChannelId channel, ChannelKind kind, ChannelId related) override;
  void on_data(ChannelId channel, std::string_view bytes) override;
  void on_room(ChannelId channel) override;
  void on_end(ChannelId channel) override;
  void on_stop(ChannelId channel) override;
  void on_goodbye() override { over_ = true; }

  void watch(int fd, std::uint64_t id, std::uint32_t events, bool anew = false);
  void fill();
  void write_stream();
  void read_stream();
  void handle(ChannelId channel, std::uint32_t events);
  void flush(ChannelId channel, Link& link);
  void write_failed(ChannelId channel, Link& link);
  void tell_end(Link& link);
  void clean_up();

  const std::uint32_t others_limit_;
  Multiplexer multiplexer_;
  StreamEnd stream_;
  sys::UniqueFd epoll_;
  bool out_blocked_ = false;
  bool over_ = false;
  std::string buffer_;
  std::map<ChannelId, Link> links_;
  std::deque<ChannelId> queue_;
  // Whose channel may be over.
  std::vector<ChannelId> ended_;
  // Whose channel is over while somebody here still takes what came.
  std::set<ChannelId> lingering_;
};

}  // namespace casemate::guest
