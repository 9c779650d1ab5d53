#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace casemate::mcp {

// Lines of a byte stream, of which none is kept beyond a bound.
class LineReader {
 public:
  explicit LineReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Bytes as they came. Keeps at most a line of the bound, and these.
  void feed(std::string_view bytes);

  struct Line {
    // Without its newline; empty when it was too long.
    std::string text;
    bool too_long = false;
  };
  // The next whole line, in order.
  std::optional<Line> next();

  // What stands behind the last newline, at the end of the stream.
  std::optional<Line> rest();

 private:
  const std::size_t max_bytes_;
  std::string buffer_;
  // Up to here there is no newline.
  std::size_t searched_ = 0;
  // In a line that is too long: what comes of it is dropped.
  bool skipping_ = false;
};

}  // namespace casemate::mcp
