#include "casemate/host_tools/answer.h"

#include <fmt/format.h>

#include "casemate/base/one_line.h"
#include "casemate/base/utf8.h"

namespace casemate {

HostToolAnswer HostToolAnswer::refused(std::string_view reason) {
  return {false, fmt::format("Error: {}", one_line(reason))};
}

std::string quote_bounded(std::string_view text) {
  // An escape is at most 10 bytes for 1, so more input than this is never shown.
  const std::string escaped = escape_for_display(text.substr(0, 4 * kMaxQuotedCharacters), 1 << 16);
  std::size_t end = 0;
  std::size_t characters = 0;
  while (end < escaped.size() && characters < kMaxQuotedCharacters) {
    ++end;
    while (end < escaped.size() && (static_cast<unsigned char>(escaped[end]) & 0xC0) == 0x80) ++end;
    ++characters;
  }
  const bool whole = end == escaped.size() && text.size() <= 4 * kMaxQuotedCharacters;
  return whole ? escaped : escaped.substr(0, end) + " (truncated)";
}

}  // namespace casemate
