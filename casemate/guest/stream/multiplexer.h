#pragma once

// Many channels over one stream of bytes, for a guest that is reached by one alone: a serial port,
// the standard streams of a process, an attached exec. The rules of the wire and nothing else: what
// came is given to `receive`, what is to go is taken from `pending`; there are no descriptors, no
// threads and no time here (channel_bridge.h has them).
//
// A message is an 8-byte header {u32 channel, u16 length of the payload, u8 type, a zero byte} and
// the payload; numbers are little-endian. Both sides begin with `hello`, which says the version and
// how many channels the other may have open at a time; nothing else is sent before the other's
// came.
//
// Channels are opened by number, each side's own numbers rising by one (the guest's have the
// highest bit), none ever used again. A channel has two directions, each of which ends once (`end`,
// after its last data); when both have, it is over. `stop` says that nothing more is taken of the
// other direction, whose sender then ends it. Data is sent against credit, `kChannelWindow` bytes
// at first, given back as they are taken: so a channel whose reader stands still holds up itself
// only, what comes can always be taken off the stream, and nothing that is urgent waits behind more
// than what is on its way already.
//
// Everything that the other side sends is checked: what breaks a rule is a `ProtocolError`, after
// which the stream is of no use any more. What a hostile side can have held here is bounded by its
// number of channels times `kChannelWindow`, and 1 MiB of answers that it does not read.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "casemate/guest/frame.h"

namespace casemate::guest {

// Said by both in their first message; the message itself never changes.
inline constexpr std::uint32_t kStreamVersion = 1;
inline constexpr std::size_t kStreamHeaderBytes = 8;
// Longest payload; equality passes. Small, so that one channel's bytes never hold up another's for
// long, where a serial port makes a few MB a second.
inline constexpr std::size_t kMaxStreamPayload = 16 * 1024;
// Bytes of one direction of a channel that may be under way and not taken. Not below
// `kStdinWindow`, and enough for 12 MB/s where an answer takes 10 ms.
inline constexpr std::uint32_t kChannelWindow = 128 * 1024;
// Most that a side may allow the other to have open; more in a hello is refused.
inline constexpr std::uint32_t kMaxStreamChannels = 1024;
// Most that waits to be sent. Far more than honest sides come to, even with all channels open.
inline constexpr std::size_t kMaxStreamPending = 1024 * 1024;

using ChannelId = std::uint32_t;

enum class StreamSide : std::uint8_t { host, guest };

// Wire values.
enum class ChannelKind : std::uint8_t {
  // A control connection of protocol.h; opened by the host, related to nothing.
  control = 0,
  // Bytes. Opened by the host, it is one end of a connection, and travels with the next data of the
  // control channel that it is related to; by the guest, it is a connection that was made to the
  // listener that it is related to.
  stream = 1,
  // A socket of the host's to which the guest's programs connect. Carries no data. As above, by
  // the host alone.
  listener = 2,
  // Something of the host's that is open as long as the guest has its copy. Likewise.
  token = 3,
};

// The other side speaks another version.
class OtherStreamVersion : public ProtocolError {
 public:
  using ProtocolError::ProtocolError;
};

// What the other side did, in the order in which it did it. May call the multiplexer's methods.
// What it throws comes out of `receive`.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  // Its hello came: channels can be opened.
  virtual void on_ready() = 0;
  // `related` may be over already where it is a listener.
  virtual void on_open(ChannelId channel, ChannelKind kind, ChannelId related) = 0;
  // Not empty, and not after `on_end` or `Multiplexer::stop`. Views what was given to `receive`.
  virtual void on_data(ChannelId channel, std::string_view bytes) = 0;
  // There is room to send again, where there was none.
  virtual void on_room(ChannelId channel) = 0;
  virtual void on_end(ChannelId channel) = 0;
  // To be answered with `Multiplexer::end`, in time.
  virtual void on_stop(ChannelId channel) = 0;
  // It will say nothing more. All channels are over.
  virtual void on_goodbye() = 0;
};

// One side of one stream. For one thread.
class Multiplexer {
 public:
  // `others_channels`: how many the other side may have open at a time, at most
  // `kMaxStreamChannels`. `events` is borrowed.
  Multiplexer(StreamSide side, std::uint32_t others_channels, StreamEvents& events);

  // -- What came -------------------------------------------------------------------------------
  // Any piece of the stream. Throws `ProtocolError`.
  void receive(std::span<const char> bytes);
  // The stream has ended. Throws `ProtocolError` when that was within a message or without a
  // goodbye.
  void receive_end() const;

  // -- What is to go ---------------------------------------------------------------------------
  std::string_view pending() const { return std::string_view(out_).substr(sent_); }
  // Of the first bytes of `pending`.
  void sent(std::size_t bytes);

  // -- Channels. What is called with a channel must be open (`is_open`), and throws
  // `std::logic_error` for what is against the rules.
  bool is_ready() const { return ready_; }
  bool can_open() const { return ready_ && !bye_ && !others_bye_ && own_open_ < own_limit_; }
  // Of those that this side has opened, how many may be open at a time; 0 before it is ready.
  std::uint32_t own_limit() const { return own_limit_; }
  std::uint32_t own_open() const { return own_open_; }
  // Only when `can_open`.
  ChannelId open(ChannelKind kind, ChannelId related);
  bool is_open(ChannelId channel) const { return channels_.contains(channel); }
  // How many bytes may be sent now, in one piece.
  std::size_t room(ChannelId channel) const;
  // Not empty, and at most `room`.
  void send(ChannelId channel, std::span<const char> bytes);
  // Nothing more is sent. Once.
  void end(ChannelId channel);
  // Nothing more is taken. Once, and not after the other side's end.
  void stop(ChannelId channel);
  // Bytes of `on_data` have been taken.
  void taken(ChannelId channel, std::size_t bytes);
  // Ends all channels and this side.
  void say_goodbye();

  std::size_t open_channels() const { return channels_.size(); }

 private:
  enum class Type : std::uint8_t {
    hello = 1,
    open = 2,
    data = 3,
    credit = 4,
    end = 5,
    stop = 6,
    goodbye = 7,
  };
  struct Channel {
    ChannelKind kind = ChannelKind::stream;
    std::uint32_t to_send = kChannelWindow;
    std::uint32_t to_receive = kChannelWindow;
    // Taken, and not said yet.
    std::uint32_t taken = 0;
    bool sent_end = false;
    bool got_end = false;
    bool sent_stop = false;
    bool got_stop = false;
  };
  struct Header {
    ChannelId channel = 0;
    std::size_t length = 0;
    Type type = Type::hello;
  };

  static Header parse(std::span<const char> bytes);
  void handle(const Header& header, std::string_view payload);
  void take_hello(const Header& header, std::string_view payload);
  void take_open(ChannelId channel, std::string_view payload);
  void take_data(ChannelId channel, std::string_view bytes);
  void take_credit(ChannelId channel, std::string_view payload);
  void take_end(ChannelId channel);
  void take_stop(ChannelId channel);
  bool is_own(ChannelId channel) const;
  Channel& open_one(ChannelId channel);
  Channel* find(ChannelId channel, const char* what);
  void forget_if_over(ChannelId channel);
  void put(Type type, ChannelId channel, std::string_view payload);

  const StreamSide side_;
  const std::uint32_t others_limit_;
  StreamEvents& events_;
  bool ready_ = false;
  bool bye_ = false;
  bool others_bye_ = false;
  std::uint32_t own_limit_ = 0;
  std::uint32_t own_open_ = 0;
  std::uint32_t others_open_ = 0;
  ChannelId own_next_;
  ChannelId others_next_;
  std::map<ChannelId, Channel> channels_;
  // A message of which not everything came.
  std::string partial_;
  std::string out_;
  std::size_t sent_ = 0;
};

}  // namespace casemate::guest
