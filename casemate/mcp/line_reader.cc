#include "casemate/mcp/line_reader.h"

#include <utility>

namespace casemate::mcp {

void LineReader::feed(std::string_view bytes) {
  if (skipping_ && buffer_.empty()) {
    const auto newline = bytes.find('\n');
    bytes.remove_prefix(newline == bytes.npos ? bytes.size() : newline);
  }
  buffer_ += bytes;
}

std::optional<LineReader::Line> LineReader::next() {
  const auto newline = buffer_.find('\n', searched_);
  if (newline == buffer_.npos) {
    if (buffer_.size() > max_bytes_) skipping_ = true;
    if (skipping_) {
      buffer_.clear();
      buffer_.shrink_to_fit();
    }
    searched_ = buffer_.size();
    return std::nullopt;
  }
  searched_ = 0;
  Line line;
  line.too_long = std::exchange(skipping_, false) || newline > max_bytes_;
  if (!line.too_long) line.text = buffer_.substr(0, newline);
  buffer_.erase(0, newline + 1);
  return line;
}

std::optional<LineReader::Line> LineReader::rest() {
  if (skipping_) return Line{{}, true};
  if (buffer_.empty()) return std::nullopt;
  return Line{std::exchange(buffer_, {}), false};
}

}  // namespace casemate::mcp
