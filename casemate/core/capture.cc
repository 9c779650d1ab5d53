#include "casemate/core/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

// Continuation bytes in front of `bytes` that end a character begun before; 0 when there are more
// than a character can have, because then the bytes are not UTF-8 and no cut is better than
// another.
std::size_t orphaned_prefix_length(std::string_view bytes) {
  constexpr std::size_t kMostContinuations = 3;
  std::size_t length = 0;
  while (length < bytes.size() && (static_cast<unsigned char>(bytes[length]) & 0xC0U) == 0x80U) {
    ++length;
  }
  return length <= kMostContinuations ? length : 0;
}

}  // namespace

StreamCapture::StreamCapture(std::uint64_t cap) : head_cap_(cap - cap / 2), tail_cap_(cap / 2) {}

void StreamCapture::append(std::span<const char> bytes) {
  const auto to_head =
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), head_cap_ - head_.size()));
  head_.append(bytes.data(), to_head);
  bytes = bytes.subspan(to_head);

  // Of a piece longer than the ring only its end can survive.
  if (bytes.size() > tail_cap_) {
    const auto skipped = static_cast<std::size_t>(bytes.size() - tail_cap_);
    dropped_ += skipped + tail_.size();
    tail_.clear();
    tail_start_ = 0;
    bytes = bytes.subspan(skipped);
  }
  const auto to_fill =
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), tail_cap_ - tail_.size()));
  tail_.append(bytes.data(), to_fill);
  bytes = bytes.subspan(to_fill);

  // The ring is full now or nothing is left: each byte takes the place of the oldest.
  while (!bytes.empty()) {
    const std::size_t run = std::min(bytes.size(), tail_.size() - tail_start_);
    std::copy_n(bytes.data(), run, tail_.begin() + static_cast<std::ptrdiff_t>(tail_start_));
    tail_start_ = (tail_start_ + run) % tail_.size();
    dropped_ += run;
    bytes = bytes.subspan(run);
  }
}

CapturedStream StreamCapture::take() {
  std::rotate(tail_.begin(), tail_.begin() + static_cast<std::ptrdiff_t>(tail_start_), tail_.end());
  CapturedStream captured;
  captured.missing_bytes = dropped_;
  if (dropped_ > 0) {
    const std::size_t from_head = incomplete_suffix_length(head_);
    head_.resize(head_.size() - from_head);
    const std::size_t from_tail = orphaned_prefix_length(tail_);
    tail_.erase(0, from_tail);
    captured.missing_bytes += from_head + from_tail;
    captured.cut_at = head_.size();
  }
  captured.bytes = std::move(head_);
  captured.bytes += tail_;
  head_.clear();
  tail_.clear();
  tail_start_ = 0;
  dropped_ = 0;
  return captured;
}

CapturedStream fit_rendering(CapturedStream captured, std::uint64_t cap) {
  const std::string_view bytes = captured.bytes;
  const auto room = static_cast<std::size_t>(
      std::min<std::uint64_t>(cap, std::numeric_limits<std::size_t>::max()));
  const bool whole = captured.missing_bytes == 0;
  const std::size_t cut = static_cast<std::size_t>(
      whole ? bytes.size() : std::min<std::uint64_t>(captured.cut_at, bytes.size()));
  const std::string_view behind = bytes.substr(cut);
  const std::size_t head_size = replaced_size(bytes.substr(0, cut));
  if (head_size <= room && replaced_size(behind) <= room - head_size) return captured;

  const std::size_t head = replaced_prefix_within(bytes.substr(0, cut), room - room / 2);
  const std::string_view rest = whole ? bytes : behind;
  const std::string_view tail = rest.substr(replaced_suffix_within(rest, room / 2));
  CapturedStream fitted;
  fitted.missing_bytes = captured.missing_bytes + (bytes.size() - head - tail.size());
  fitted.cut_at = head;
  fitted.bytes.reserve(head + tail.size());
  fitted.bytes.append(bytes.substr(0, head)).append(tail);
  return fitted;
}

std::string render_stream(const CapturedStream& captured) {
  if (captured.missing_bytes == 0) {
    return replace_invalid_utf8(captured.bytes);
  }
  const std::string_view bytes = captured.bytes;
  const auto cut = static_cast<std::size_t>(std::min<std::uint64_t>(captured.cut_at, bytes.size()));
  std::string text = replace_invalid_utf8(bytes.substr(0, cut));
  if (!text.empty() && !text.ends_with('\n')) {
    text += '\n';
  }
  text += fmt::format("[... {} bytes missing ...]\n", captured.missing_bytes);
  text += replace_invalid_utf8(bytes.substr(cut));
  return text;
}

}  // namespace casemate
