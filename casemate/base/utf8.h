#pragma once

// UTF-8 as guests send it: validated, never assumed.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate {

// Well-formed UTF-8: no surrogates, no overlong forms, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view bytes);

// Each maximal invalid part becomes one U+FFFD (Unicode 15, section 3.9, table 3-8).
std::string replace_invalid_utf8(std::string_view bytes);

// Size of what `replace_invalid_utf8` makes of `bytes`.
std::size_t replaced_size(std::string_view bytes);

// How far into `bytes` one may go so that what lies before, with its invalid parts replaced as
// above, has at most `max_bytes`; and from where so that what lies behind has. Neither cuts a
// character or an invalid part.
std::size_t replaced_prefix_within(std::string_view bytes, std::size_t max_bytes);
std::size_t replaced_suffix_within(std::string_view bytes, std::size_t max_bytes);

// Decodes a stream that arrives in pieces: a character split between two pieces stays whole.
class Utf8Decoder {
 public:
  // Valid UTF-8 for as much of the input as is complete.
  std::string feed(std::string_view bytes);
  // What is left, an incomplete character as U+FFFD. The decoder starts anew.
  std::string finish();

 private:
  std::string pending_;  // at most 3 bytes
};

// Largest offset <= `at` that does not lie inside a character of `bytes` (looks at 3 bytes back at
// most; on invalid bytes returns `at`).
std::size_t character_boundary_before(std::string_view bytes, std::size_t at);

// Length of the well-begun but unfinished character at the end of `bytes`, 0 to 3.
std::size_t incomplete_suffix_length(std::string_view bytes);

// Code points of valid UTF-8. What is invalid becomes U+FFFD, as in `replace_invalid_utf8`.
std::u32string decode_utf8(std::string_view valid);
// One code point. A surrogate or a value above U+10FFFF becomes U+FFFD.
std::string encode_utf8(char32_t code_point);

// Unicode NFC. Input must be valid; throws `std::invalid_argument` otherwise.
std::string normalise_nfc(std::string_view valid);
// Lower case by Unicode's unconditional mappings, the same under every locale (so no final sigma,
// and sharp s is not "ss"). Input must be valid; throws `std::invalid_argument` otherwise.
std::string lower_case(std::string_view valid);

// Text safe for one line on a terminal: control characters (C0, DEL, C1), invisible formatting
// (bidirectional and zero-width controls, tags) and line separators as \n, \t, \xNN or \u{NNNN};
// invalid bytes as \xNN; a backslash doubled. At most `max_bytes` of result, then "...".
std::string escape_for_display(std::string_view bytes, std::size_t max_bytes = 400);

}  // namespace casemate
