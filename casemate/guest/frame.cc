#include "casemate/guest/frame.h"

#include <algorithm>
#include <utility>

#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

std::string little_endian(std::uint64_t value, std::size_t width) {
  std::string bytes(width, '\0');
  for (std::size_t i = 0; i < width; ++i) {
    bytes[i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  return bytes;
}

std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

// -- Writer --------------------------------------------------------------------------------------

void Writer::append(std::string_view bytes) {
  if (bytes.size() > kMaxPayload - bytes_.size()) {
    throw std::length_error("a frame's payload is at most 1 MiB");
  }
  bytes_.append(bytes);
}

Writer& Writer::u8(std::uint8_t value) {
  append(little_endian(value, 1));
  return *this;
}

Writer& Writer::u32(std::uint32_t value) {
  append(little_endian(value, 4));
  return *this;
}

Writer& Writer::u64(std::uint64_t value) {
  append(little_endian(value, 8));
  return *this;
}

Writer& Writer::string(std::string_view text) {
  if (text.size() > kMaxPayload) throw std::length_error("a frame's payload is at most 1 MiB");
  u32(static_cast<std::uint32_t>(text.size()));
  append(text);
  return *this;
}

// -- Reader --------------------------------------------------------------------------------------

std::string_view Reader::take(std::size_t count) {
  if (count > rest_.size()) throw ProtocolError("a payload ends inside a field");
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

std::uint8_t Reader::u8() { return static_cast<std::uint8_t>(take(1)[0]); }

bool Reader::flag() {
  const std::uint8_t value = u8();
  if (value > 1) throw ProtocolError("a flag is neither 0 nor 1");
  return value == 1;
}

std::uint32_t Reader::u32() { return static_cast<std::uint32_t>(from_little_endian(take(4))); }

std::uint64_t Reader::u64() { return from_little_endian(take(8)); }

std::string Reader::string(std::size_t max) {
  const std::uint32_t size = u32();
  if (size > max) throw ProtocolError("a string is over its bound");
  return std::string(take(size));
}

std::string Reader::c_string(std::size_t max) {
  std::string text = string(max);
  if (text.find('\0') != std::string::npos) throw ProtocolError("a string holds a NUL");
  return text;
}

void Reader::finish() const {
  if (!rest_.empty()) throw ProtocolError("a payload is longer than its fields");
}

// -- FrameReader ---------------------------------------------------------------------------------

// Reads into `target` behind the `have` bytes it holds; true when it is full.
bool FrameReader::fill(std::span<char> target, std::size_t& have) {
  while (have < target.size()) {
    sys::ReceivedMessage received =
        sys::receive_message(socket_, target.subspan(have), sys::Blocking::no);
    for (sys::UniqueFd& descriptor : received.descriptors) {
      frame_.descriptors.push_back(std::move(descriptor));
    }
    if (received.truncated || frame_.descriptors.size() > kMaxFrameDescriptors) {
      throw ProtocolError("more descriptors than a frame may carry");
    }
    if (received.would_block) return false;
    if (received.bytes == 0) {
      closed_ = true;
      if (header_have_ != 0) throw ProtocolError("the stream ended inside a frame");
      return false;
    }
    have += received.bytes;
  }
  return true;
}

std::optional<Frame> FrameReader::next() {
  if (closed_) return std::nullopt;
  if (header_have_ < kHeaderBytes) {
    if (!fill(header_, header_have_)) return std::nullopt;
    const std::string_view header(header_.data(), kHeaderBytes);
    const std::uint64_t size = from_little_endian(header.substr(0, 4));
    if (size > kMaxPayload) throw ProtocolError("a frame is over 1 MiB");
    if (header.substr(5) != std::string_view("\0\0\0", 3)) {
      throw ProtocolError("a frame's reserved bytes are not zero");
    }
    frame_.type = static_cast<std::uint8_t>(header[4]);
    frame_.payload = std::exchange(spare_, {});
    frame_.payload.resize(size);
    payload_have_ = 0;
  }
  if (!fill(frame_.payload, payload_have_)) return std::nullopt;
  header_have_ = 0;
  return std::exchange(frame_, Frame{});
}

// -- FrameWriter ---------------------------------------------------------------------------------

namespace {

std::string header_of(std::uint8_t type, std::string_view payload) {
  if (payload.size() > kMaxPayload) throw std::length_error("a frame's payload is at most 1 MiB");
  std::string header = little_endian(payload.size(), 4);
  header += static_cast<char>(type);
  header.append(3, '\0');
  return header;
}

}  // namespace

void FrameWriter::queue(Chunk chunk) {
  queued_ += chunk.bytes.size();
  chunks_.push_back(std::move(chunk));
}

void FrameWriter::put(std::uint8_t type, std::string_view payload,
                      std::span<const int> descriptors) {
  if (descriptors.size() > kMaxFrameDescriptors) {
    throw std::length_error("more descriptors than a frame carries");
  }
  Chunk chunk;
  chunk.bytes.reserve(kHeaderBytes + payload.size());
  chunk.bytes = header_of(type, payload);
  chunk.bytes += payload;
  chunk.descriptors.assign(descriptors.begin(), descriptors.end());
  queue(std::move(chunk));
}

bool FrameWriter::send(std::uint8_t type, std::string_view payload) {
  if (!chunks_.empty()) {
    put(type, payload);
    return flush();
  }
  const std::string header = header_of(type, payload);
  const std::size_t sent = sys::send_parts(socket_, header, payload, sys::Blocking::no);
  if (sent == kHeaderBytes + payload.size()) return true;
  Chunk rest;
  if (sent < kHeaderBytes) rest.bytes = header.substr(sent);
  rest.bytes += payload.substr(sent - std::min(sent, kHeaderBytes));
  queue(std::move(rest));
  return false;
}

bool FrameWriter::flush() {
  while (!chunks_.empty()) {
    Chunk& first = chunks_.front();
    const std::size_t sent =
        sys::send_message(socket_, std::span(first.bytes).subspan(sent_of_first_),
                          first.descriptors, sys::Blocking::no);
    if (sent == 0) return false;
    first.descriptors.clear();
    sent_of_first_ += sent;
    queued_ -= sent;
    if (sent_of_first_ < first.bytes.size()) continue;
    chunks_.pop_front();
    sent_of_first_ = 0;
  }
  return true;
}

}  // namespace casemate::guest
