#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "casemate/core/exec.h"

namespace casemate {

// Keeps the head and the tail of a byte stream of any length in bounded memory.
//
// At most `cap` bytes are ever held (half head, half tail; an odd byte goes to the head). `take`
// moves the result out. Not thread-safe. `cap` 0 keeps nothing and counts everything.
class StreamCapture {
 public:
  explicit StreamCapture(std::uint64_t cap);

  void append(std::span<const char> bytes);

  // Cuts are moved outwards to UTF-8 character boundaries (at most 3 bytes each way, counted as
  // missing), so a kept character is whole when the stream is UTF-8.
  CapturedStream take();

 private:
  std::uint64_t head_cap_;
  std::uint64_t tail_cap_;
  std::uint64_t dropped_ = 0;
  std::string head_;
  std::string tail_;            // ring buffer once full
  std::size_t tail_start_ = 0;  // oldest byte of the ring
};

// `captured` less what `render_stream` would write beyond `cap` bytes, its line about missing bytes
// not counted: replacing makes up to three bytes of one. Head and tail stay, cut between
// characters; what goes is counted as missing, in bytes of the stream.
CapturedStream fit_rendering(CapturedStream captured, std::uint64_t cap);

// `captured` for a reader: invalid sequences become U+FFFD, and where bytes are missing a line of
// its own, "[... N bytes missing ...]", stands at the cut.
std::string render_stream(const CapturedStream& captured);

}  // namespace casemate
