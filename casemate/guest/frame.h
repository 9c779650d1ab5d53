#pragma once

// Frames on a byte stream, as both sides read and write them.
//
// A frame is an 8-byte header {u32 length of the payload, u8 type, three zero bytes} and the
// payload; numbers are little-endian, a string is its u32 length and its bytes. Nothing a peer
// sends is believed: every bound is checked before anything is allocated for it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

inline constexpr std::size_t kHeaderBytes = 8;
// Longest payload of any frame; equality passes. An exec request with its environment fits.
inline constexpr std::size_t kMaxPayload = 1024 * 1024;
// Longest payload of a frame that carries data of a stream or a file.
inline constexpr std::size_t kMaxData = 64 * 1024;
// Descriptors with one frame: the groups of a call's accounting, a counter of processor time, and
// the sockets of its host tools and its egress.
inline constexpr std::size_t kMaxFrameDescriptors = 11;

// The peer broke the protocol. On the host it becomes `SandboxUnavailable`; in the guest it ends
// the connection.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Builds a payload. A payload over the bound is the caller's fault and throws `std::length_error`.
class Writer {
 public:
  Writer& u8(std::uint8_t value);
  Writer& u32(std::uint32_t value);
  Writer& u64(std::uint64_t value);
  Writer& i32(std::int32_t value) { return u32(static_cast<std::uint32_t>(value)); }
  Writer& string(std::string_view text);
  std::size_t size() const noexcept { return bytes_.size(); }
  std::string take() { return std::move(bytes_); }

 private:
  void append(std::string_view bytes);
  std::string bytes_;
};

// Takes a payload apart. Every method throws `ProtocolError` when the bytes do not hold what is
// asked for. Views `payload`, which must live as long.
class Reader {
 public:
  explicit Reader(std::string_view payload) : rest_(payload) {}
  std::uint8_t u8();
  // A byte that may only be 0 or 1.
  bool flag();
  std::uint32_t u32();
  std::uint64_t u64();
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  // At most `max` bytes; equality passes.
  std::string string(std::size_t max);
  // The same, and without NUL: what becomes a C string.
  std::string c_string(std::size_t max);
  bool at_end() const noexcept { return rest_.empty(); }
  // Throws when bytes are left.
  void finish() const;

 private:
  std::string_view take(std::size_t count);
  std::string_view rest_;
};

struct Frame {
  std::uint8_t type = 0;
  std::string payload;
  std::vector<sys::UniqueFd> descriptors;
};

// Cuts what arrives on a stream socket into frames. Never blocks, holds at most one frame.
// The descriptor is borrowed.
class FrameReader {
 public:
  explicit FrameReader(int socket) : socket_(socket) {}

  // The next whole frame, or nothing when more has to arrive (`closed` tells whether it ever will).
  // Throws `ProtocolError` for a header over the bounds, descriptors over the bound or a stream
  // that ends inside a frame; `std::system_error` when the socket fails.
  std::optional<Frame> next();

  bool closed() const noexcept { return closed_; }

  // Storage for the next payload, of one that is done with: of many frames with data in a row, none
  // has to be allocated and cleared.
  void reuse(std::string payload) noexcept { spare_ = std::move(payload); }

 private:
  bool fill(std::span<char> target, std::size_t& have);

  int socket_;
  bool closed_ = false;
  std::array<char, kHeaderBytes> header_{};
  std::size_t header_have_ = 0;
  std::size_t payload_have_ = 0;
  Frame frame_;
  std::string spare_;
};

// Frames on their way out. `put` only queues; `flush` sends what fits without blocking. The
// descriptor is borrowed.
class FrameWriter {
 public:
  explicit FrameWriter(int socket) : socket_(socket) {}

  // `descriptors` travel with the frame's first byte and must stay open until it was sent.
  void put(std::uint8_t type, std::string_view payload, std::span<const int> descriptors = {});

  // Returns whether everything is sent. Throws `std::system_error`, EPIPE when the peer is gone.
  bool flush();

  // As `put` and `flush`, and nothing is copied that can be sent at once.
  bool send(std::uint8_t type, std::string_view payload);

  // Bytes queued and not yet sent.
  std::size_t pending() const noexcept { return queued_; }

 private:
  struct Chunk {
    std::string bytes;
    std::vector<int> descriptors;
  };
  void queue(Chunk chunk);

  int socket_;
  std::deque<Chunk> chunks_;
  std::size_t sent_of_first_ = 0;
  std::size_t queued_ = 0;
};

}  // namespace casemate::guest
