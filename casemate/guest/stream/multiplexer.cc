#include "casemate/guest/stream/multiplexer.h"

#include <algorithm>
#include <stdexcept>

namespace casemate::guest {
namespace {

// Of every version. Whatever else a stream begins with is not ours.
constexpr std::string_view kMagic = "casemate";
constexpr ChannelId kGuestBit = 0x8000'0000;
// Taken bytes are said in pieces, so that one message in four or so is a credit.
constexpr std::uint32_t kCreditStep = kChannelWindow / 4;

bool carries_data(ChannelKind kind) {
  return kind == ChannelKind::control || kind == ChannelKind::stream;
}

}  // namespace

Multiplexer::Multiplexer(StreamSide side, std::uint32_t others_channels, StreamEvents& events)
    : side_(side),
      others_limit_(std::min(others_channels, kMaxStreamChannels)),
      events_(events),
      own_next_(side == StreamSide::guest ? kGuestBit : 1),
      others_next_(side == StreamSide::guest ? 1 : kGuestBit) {
  Writer hello;
  std::string payload(kMagic);
  payload += hello.u32(kStreamVersion).u32(others_limit_).take();
  put(Type::hello, 0, payload);
}

// -- What came -----------------------------------------------------------------------------------

Multiplexer::Header Multiplexer::parse(std::span<const char> bytes) {
  Reader reader({bytes.data(), kStreamHeaderBytes});
  Header header;
  header.channel = reader.u32();
  header.length = reader.u8();
  header.length |= static_cast<std::size_t>(reader.u8()) << 8;
  const std::uint8_t type = reader.u8();
  if (type < static_cast<std::uint8_t>(Type::hello) ||
      type > static_cast<std::uint8_t>(Type::goodbye) || reader.u8() != 0) {
    throw ProtocolError("what came is no message of a multiplexed stream");
  }
  header.type = static_cast<Type>(type);
  if (header.length > kMaxStreamPayload) throw ProtocolError("a message is over 16 KiB");
  return header;
}

void Multiplexer::receive(std::span<const char> bytes) {
  while (!bytes.empty()) {
    if (others_bye_) throw ProtocolError("bytes after the goodbye");
    std::span<const char> whole = bytes;
    const bool joined = !partial_.empty();
    std::size_t used = 0;
    const auto complete = [&](std::size_t size) {
      if (!joined) return whole.size() >= size;
      if (partial_.size() < size) {
        const std::size_t more = std::min(size - partial_.size(), bytes.size() - used);
        partial_.append(bytes.data() + used, more);
        used += more;
      }
      whole = partial_;
      return whole.size() >= size;
    };
    if (!complete(kStreamHeaderBytes)) {
      if (!joined) partial_.assign(bytes.data(), bytes.size());
      return;
    }
    const Header header = parse(whole);
    const std::size_t size = kStreamHeaderBytes + header.length;
    if (!complete(size)) {
      if (!joined) partial_.assign(bytes.data(), bytes.size());
      return;
    }
    // Out of the way first: whatever is thrown, no message is handled twice.
    std::string held;
    if (joined) {
      held.swap(partial_);
      whole = held;
    } else {
      used = size;
    }
    handle(header, {whole.data() + kStreamHeaderBytes, header.length});
    bytes = bytes.subspan(used);
  }
}

void Multiplexer::receive_end() const {
  if (others_bye_) return;
  throw ProtocolError(partial_.empty() ? "the stream ended without a goodbye"
                                       : "the stream ended within a message");
}

void Multiplexer::handle(const Header& header, std::string_view payload) {
  if (!ready_) return take_hello(header, payload);
  // What was on its way when this side said its goodbye is for nobody any more.
  if (bye_ && header.type != Type::goodbye) return;
  switch (header.type) {
    case Type::open:
      return take_open(header.channel, payload);
    case Type::data:
      return take_data(header.channel, payload);
    case Type::credit:
      return take_credit(header.channel, payload);
    case Type::end:
    case Type::stop:
    case Type::goodbye:
      Reader(payload).finish();
      if (header.type == Type::end) return take_end(header.channel);
      if (header.type == Type::stop) return take_stop(header.channel);
      others_bye_ = true;
      channels_.clear();
      own_open_ = others_open_ = 0;
      return events_.on_goodbye();
    case Type::hello:
      break;
  }
  throw ProtocolError("a second hello");
}

void Multiplexer::take_hello(const Header& header, std::string_view payload) {
  if (header.type != Type::hello || header.channel != 0 || !payload.starts_with(kMagic)) {
    throw ProtocolError("the stream does not begin with the hello of a multiplexed stream");
  }
  Reader reader(payload.substr(kMagic.size()));
  if (reader.u32() != kStreamVersion) throw OtherStreamVersion("another version of the stream");
  own_limit_ = reader.u32();
  reader.finish();
  if (own_limit_ > kMaxStreamChannels) throw ProtocolError("more channels than there may be");
  ready_ = true;
  events_.on_ready();
}

void Multiplexer::take_open(ChannelId channel, std::string_view payload) {
  Reader reader(payload);
  const std::uint8_t value = reader.u8();
  const ChannelId related = reader.u32();
  reader.finish();
  if (value > static_cast<std::uint8_t>(ChannelKind::token)) {
    throw ProtocolError("an unknown kind of channel");
  }
  const auto kind = static_cast<ChannelKind>(value);
  if (is_own(channel) || channel != others_next_)
    throw ProtocolError("a channel's number is not the next one");
  if (others_open_ >= others_limit_) throw ProtocolError("more channels than were allowed");
  const auto found = channels_.find(related);
  if (side_ == StreamSide::host) {
    if (kind != ChannelKind::stream) throw ProtocolError("a channel that only the host opens");
    const bool was = related != 0 && is_own(related) && related < own_next_;
    if (!was || (found != channels_.end() && found->second.kind != ChannelKind::listener)) {
      throw ProtocolError("a connection to what is no listener");
    }
  } else if (kind == ChannelKind::control) {
    if (related != 0) throw ProtocolError("a control channel is related to nothing");
  } else if (found == channels_.end() || found->second.kind != ChannelKind::control ||
             found->second.got_end) {
    throw ProtocolError("a channel that travels with what is no control channel");
  }
  channels_.emplace(channel, Channel{.kind = kind});
  ++others_next_;
  ++others_open_;
  events_.on_open(channel, kind, related);
}

void Multiplexer::take_data(ChannelId channel, std::string_view bytes) {
  Channel& found = open_one(channel);
  if (!carries_data(found.kind) || found.got_end || bytes.empty()) {
    throw ProtocolError("data where there can be none");
  }
  if (bytes.size() > found.to_receive) throw ProtocolError("more data than there was credit for");
  found.to_receive -= static_cast<std::uint32_t>(bytes.size());
  if (!found.sent_stop) events_.on_data(channel, bytes);
}

void Multiplexer::take_credit(ChannelId channel, std::string_view payload) {
  Reader reader(payload);
  const std::uint32_t bytes = reader.u32();
  reader.finish();
  Channel* found = find(channel, "credit for no channel");
  if (found == nullptr) return;
  if (!carries_data(found->kind) || bytes == 0 || bytes > kChannelWindow - found->to_send) {
    throw ProtocolError("more credit than was used");
  }
  const bool was_none = found->to_send == 0;
  found->to_send += bytes;
  if (was_none && !found->sent_end && !found->got_stop) events_.on_room(channel);
}

void Multiplexer::take_end(ChannelId channel) {
  Channel& found = open_one(channel);
  if (found.got_end) throw ProtocolError("a second end");
  found.got_end = true;
  events_.on_end(channel);
  forget_if_over(channel);
}

void Multiplexer::take_stop(ChannelId channel) {
  Channel* found = find(channel, "a stop of no channel");
  if (found == nullptr) return;
  if (found->got_stop) throw ProtocolError("a second stop");
  found->got_stop = true;
  if (!found->sent_end) events_.on_stop(channel);
}

bool Multiplexer::is_own(ChannelId channel) const {
  return ((channel & kGuestBit) != 0) == (side_ == StreamSide::guest);
}

// Of a message that nobody honest sends for a channel that is over.
Multiplexer::Channel& Multiplexer::open_one(ChannelId channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) throw ProtocolError("a message for no channel");
  return found->second;
}

// Null when it is over: then the message was on its way when this side ended the channel.
Multiplexer::Channel* Multiplexer::find(ChannelId channel, const char* what) {
  const auto found = channels_.find(channel);
  if (found != channels_.end()) return &found->second;
  const ChannelId first = (channel & kGuestBit) != 0 ? kGuestBit : 1;
  if (channel < first || channel >= (is_own(channel) ? own_next_ : others_next_)) {
    throw ProtocolError(what);
  }
  return nullptr;
}

void Multiplexer::forget_if_over(ChannelId channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end() || !found->second.sent_end || !found->second.got_end) return;
  channels_.erase(found);
  --(is_own(channel) ? own_open_ : others_open_);
}

// -- What is to go -------------------------------------------------------------------------------

void Multiplexer::put(Type type, ChannelId channel, std::string_view payload) {
  if (pending().size() + kStreamHeaderBytes + payload.size() > kMaxStreamPending) {
    throw ProtocolError("the other side does not read what it asks for");
  }
  Writer header;
  header.u32(channel)
      .u8(static_cast<std::uint8_t>(payload.size()))
      .u8(static_cast<std::uint8_t>(payload.size() >> 8))
      .u8(static_cast<std::uint8_t>(type))
      .u8(0);
  out_ += header.take();
  out_ += payload;
}

void Multiplexer::sent(std::size_t bytes) {
  if (bytes > pending().size()) throw std::logic_error("more was sent than there was");
  sent_ += bytes;
  // Moved together when that is cheap, so that the whole stays within twice its bound.
  if (sent_ == out_.size() || sent_ > kMaxStreamPending / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
}

ChannelId Multiplexer::open(ChannelKind kind, ChannelId related) {
  if (!can_open()) throw std::logic_error("no channel can be opened");
  const ChannelId channel = own_next_;
  // Two thousand million later: no number is used twice.
  if (!is_own(channel + 1)) throw ProtocolError("the stream has no more numbers for channels");
  put(Type::open, channel, Writer().u8(static_cast<std::uint8_t>(kind)).u32(related).take());
  channels_.emplace(channel, Channel{.kind = kind});
  ++own_next_;
  ++own_open_;
  return channel;
}

std::size_t Multiplexer::room(ChannelId channel) const {
  const Channel& found = channels_.at(channel);
  if (!carries_data(found.kind) || found.sent_end || found.got_stop) return 0;
  return std::min<std::size_t>(found.to_send, kMaxStreamPayload);
}

void Multiplexer::send(ChannelId channel, std::span<const char> bytes) {
  if (bytes.empty() || bytes.size() > room(channel)) throw std::logic_error("no room to send");
  put(Type::data, channel, {bytes.data(), bytes.size()});
  channels_.at(channel).to_send -= static_cast<std::uint32_t>(bytes.size());
}

void Multiplexer::end(ChannelId channel) {
  Channel& found = channels_.at(channel);
  if (found.sent_end) throw std::logic_error("ended twice");
  put(Type::end, channel, {});
  found.sent_end = true;
  forget_if_over(channel);
}

void Multiplexer::stop(ChannelId channel) {
  Channel& found = channels_.at(channel);
  if (found.sent_stop || found.got_end) throw std::logic_error("stopped too late");
  put(Type::stop, channel, {});
  found.sent_stop = true;
}

void Multiplexer::taken(ChannelId channel, std::size_t bytes) {
  Channel& found = channels_.at(channel);
  const std::uint32_t under_way = kChannelWindow - found.to_receive - found.taken;
  if (bytes > under_way) throw std::logic_error("more was taken than came");
  found.taken += static_cast<std::uint32_t>(bytes);
  if (found.taken < kCreditStep || found.got_end || found.sent_stop) return;
  put(Type::credit, channel, Writer().u32(found.taken).take());
  found.to_receive += found.taken;
  found.taken = 0;
}

void Multiplexer::say_goodbye() {
  if (bye_) return;
  put(Type::goodbye, 0, {});
  bye_ = true;
  channels_.clear();
  own_open_ = others_open_ = 0;
}

}  // namespace casemate::guest
