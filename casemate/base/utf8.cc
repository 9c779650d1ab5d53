#include "casemate/base/utf8.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "casemate/base/one_line.h"

namespace casemate {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class PartKind : std::uint8_t { character, invalid, incomplete };

// What stands at the beginning of some bytes. An invalid part is as long as it agrees with some
// character, one byte at least; an incomplete one reaches to the end.
struct Part {
  PartKind kind;
  std::size_t length;
  char32_t code_point;
};

std::uint8_t byte_at(std::string_view bytes, std::size_t index) {
  return static_cast<std::uint8_t>(bytes[index]);
}

bool is_continuation(std::uint8_t byte) { return (byte & 0xC0U) == 0x80U; }

// `bytes` is not empty. The ranges are those of Unicode 15, table 3-7.
Part first_part(std::string_view bytes) {
  const std::uint8_t lead = byte_at(bytes, 0);
  if (lead < 0x80) {
    return {PartKind::character, 1, lead};
  }
  std::size_t length = 0;
  char32_t code_point = 0;
  // Bounds of the second byte; they exclude overlong forms, surrogates and what is above U+10FFFF.
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code_point = lead & 0x1FU;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    code_point = lead & 0x0FU;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code_point = lead & 0x07U;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return {PartKind::invalid, 1, 0};
  }
  for (std::size_t index = 1; index < length; ++index) {
    if (index == bytes.size()) {
      return {PartKind::incomplete, index, 0};
    }
    const std::uint8_t byte = byte_at(bytes, index);
    if (byte < low || byte > high) {
      return {PartKind::invalid, index, 0};
    }
    code_point = (code_point << 6U) | (byte & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {PartKind::character, length, code_point};
}

std::size_t size_replaced(const Part& part) {
  return part.kind == PartKind::character ? part.length : kReplacement.size();
}

void require_valid(std::string_view bytes) {
  if (!is_valid_utf8(bytes)) {
    throw std::invalid_argument("text is not valid UTF-8");
  }
}

// Invisible, or able to move the cursor or reorder what a person sees.
bool needs_escape(char32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

std::string escape_byte(std::uint8_t byte) { return fmt::format("\\x{:02x}", byte); }

std::string escape_character(std::string_view character, char32_t code_point) {
  switch (code_point) {
    case U'\n':
      return "\\n";
    case U'\t':
      return "\\t";
    case U'\\':
      return "\\\\";
    default:
      break;
  }
  if (!needs_escape(code_point)) {
    return std::string(character);
  }
  return code_point < 0x80 ? escape_byte(static_cast<std::uint8_t>(code_point))
                           : fmt::format("\\u{{{:04x}}}", static_cast<std::uint32_t>(code_point));
}

}  // namespace

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Part part = first_part(bytes);
    if (part.kind != PartKind::character) {
      return false;
    }
    bytes.remove_prefix(part.length);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Part part = first_part(bytes);
    text += part.kind == PartKind::character ? bytes.substr(0, part.length) : kReplacement;
    bytes.remove_prefix(part.length);
  }
  return text;
}

std::size_t replaced_prefix_within(std::string_view bytes, std::size_t max_bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Part part = first_part(bytes.substr(at));
    const std::size_t size = size_replaced(part);
    if (size > max_bytes) break;
    max_bytes -= size;
    at += part.length;
  }
  return at;
}

std::size_t replaced_size(std::string_view bytes) {
  std::size_t size = 0;
  while (!bytes.empty()) {
    const Part part = first_part(bytes);
    size += size_replaced(part);
    bytes.remove_prefix(part.length);
  }
  return size;
}

std::size_t replaced_suffix_within(std::string_view bytes, std::size_t max_bytes) {
  std::size_t left = replaced_size(bytes);
  std::size_t at = 0;
  while (left > max_bytes) {
    const Part part = first_part(bytes.substr(at));
    left -= size_replaced(part);
    at += part.length;
  }
  return at;
}

std::string Utf8Decoder::feed(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    joined += bytes;
    bytes = joined;
  }
  const std::size_t kept = incomplete_suffix_length(bytes);
  pending_ = bytes.substr(bytes.size() - kept);
  return replace_invalid_utf8(bytes.substr(0, bytes.size() - kept));
}

std::string Utf8Decoder::finish() {
  const std::string rest = std::move(pending_);
  pending_.clear();
  return replace_invalid_utf8(rest);
}

std::size_t character_boundary_before(std::string_view bytes, std::size_t at) {
  if (at >= bytes.size()) {
    return bytes.size();
  }
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, at); ++back) {
    const std::size_t start = at - back;
    if (is_continuation(byte_at(bytes, start))) {
      continue;
    }
    const Part part = first_part(bytes.substr(start));
    return part.kind == PartKind::character && part.length > back ? start : at;
  }
  return at;
}

std::size_t incomplete_suffix_length(std::string_view bytes) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, bytes.size()); ++length) {
    const std::string_view suffix = bytes.substr(bytes.size() - length);
    if (!is_continuation(byte_at(suffix, 0))) {
      return first_part(suffix).kind == PartKind::incomplete ? length : 0;
    }
  }
  return 0;
}

std::u32string decode_utf8(std::string_view valid) {
  std::u32string code_points;
  while (!valid.empty()) {
    const Part part = first_part(valid);
    code_points += part.kind == PartKind::character ? part.code_point : U'\uFFFD';
    valid.remove_prefix(part.length);
  }
  return code_points;
}

std::string encode_utf8(char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length =
      utf8proc_codepoint_valid(static_cast<utf8proc_int32_t>(code_point))
          ? utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes)
          : 0;
  if (length <= 0) {
    return std::string(kReplacement);
  }
  return std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

std::string normalise_nfc(std::string_view valid) {
  require_valid(valid);
  utf8proc_uint8_t* mapped = nullptr;
  // The library takes its flags as a sum, in a parameter of the enumeration's type.
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &mapped, kOptions);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) {
    throw std::runtime_error(fmt::format("NFC failed: {}", utf8proc_errmsg(length)));
  }
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
}

std::string lower_case(std::string_view valid) {
  require_valid(valid);
  std::string lowered;
  lowered.reserve(valid.size());
  for (const char32_t code_point : decode_utf8(valid)) {
    lowered += encode_utf8(
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
    if (code_point == U'\u0130') {
      // The one unconditional mapping to two code points (SpecialCasing.txt): i and a dot above.
      lowered += "\xCC\x87";
    }
  }
  return lowered;
}

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const Part part = first_part(text);
    if (part.kind != PartKind::character) {
      line += kReplacement;
    } else if (part.code_point == U'\n' || part.code_point == U'\r') {
      line += ' ';
    } else if (part.code_point == U'\\') {
      line += '\\';
    } else {
      line += escape_character(text.substr(0, part.length), part.code_point);
    }
    text.remove_prefix(part.length);
  }
  return line;
}

std::string escape_for_display(std::string_view bytes, std::size_t max_bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Part part = first_part(bytes);
    std::string shown;
    if (part.kind == PartKind::character) {
      shown = escape_character(bytes.substr(0, part.length), part.code_point);
    } else {
      for (const char byte : bytes.substr(0, part.length)) {
        shown += escape_byte(static_cast<std::uint8_t>(byte));
      }
    }
    if (text.size() + shown.size() > max_bytes) {
      return text + "...";
    }
    text += shown;
    bytes.remove_prefix(part.length);
  }
  return text;
}

}  // namespace casemate
