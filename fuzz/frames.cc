// A byte stream cut into frames: whatever the cuts of the transport, the frames are those that were
// sent, and nothing over the bounds is taken.

#include <algorithm>
#include <string>
#include <vector>

#include "casemate/guest/frame.h"
#include "casemate/sys/socket.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

// What a socket takes at once without a reader.
constexpr std::size_t kMaxStream = 96 * 1024;

struct Heard {
  std::vector<guest::Frame> frames;
  bool refused = false;
};

// Reads what is written in pieces of `piece` bytes; the stream ends behind it.
Heard hear(std::string_view stream, std::size_t piece) {
  auto [near, far] = sys::socket_pair(sys::SocketType::stream);
  guest::FrameReader reader(near.get());
  Heard heard;
  try {
    while (!stream.empty()) {
      const std::string_view part = stream.substr(0, piece);
      const std::size_t sent = sys::send_message(far.get(), part, {}, sys::Blocking::no);
      if (sent == 0) return heard;  // no finding: this much does not fit at once
      stream.remove_prefix(sent);
      while (auto frame = reader.next()) heard.frames.push_back(std::move(*frame));
    }
    far.reset();
    while (auto frame = reader.next()) heard.frames.push_back(std::move(*frame));
    require(reader.closed(), "a reader notices the end of its stream");
  } catch (const guest::ProtocolError&) {
    heard.refused = true;
  }
  return heard;
}

std::string written(const std::vector<guest::Frame>& frames) {
  std::string stream;
  for (const guest::Frame& frame : frames) {
    guest::Writer header;
    header.u32(static_cast<std::uint32_t>(frame.payload.size())).u8(frame.type);
    stream += header.take() + std::string(3, '\0') + frame.payload;
  }
  return stream;
}

}  // namespace

void fuzz_frames(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte();
  const std::string_view stream = input.rest().substr(0, kMaxStream);
  const Heard heard = hear(stream, piece);
  for (const guest::Frame& frame : heard.frames) {
    require(frame.payload.size() <= guest::kMaxPayload, "no payload is over its bound");
    require(frame.descriptors.empty(), "no descriptor comes out of bytes");
  }
  const std::string taken = written(heard.frames);
  require(stream.starts_with(taken), "frames are the bytes that were sent");
  require(heard.refused || taken.size() == stream.size(),
          "bytes that are no whole frame are refused at the end");
  const Heard whole = hear(stream, kMaxStream);
  require(whole.refused == heard.refused && written(whole.frames) == taken,
          "how a stream is cut into pieces changes nothing");
}

}  // namespace casemate::fuzz
