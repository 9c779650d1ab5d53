// UTF-8: the functions agree with each other, and what they make is text.

#include "casemate/base/utf8.h"

#include <algorithm>
#include <string>

#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

void check_decoder(std::string_view text, std::size_t piece, const std::string& replaced) {
  Utf8Decoder decoder;
  std::string decoded;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string part = decoder.feed(rest.substr(0, piece));
    require(is_valid_utf8(part), "what a decoder gives is text at any time");
    decoded += part;
    rest.remove_prefix(std::min(piece, rest.size()));
  }
  decoded += decoder.finish();
  require(decoded == replaced, "a stream decodes the same however it is cut");
}

void check_cuts(std::string_view text, std::size_t max_bytes, const std::string& replaced) {
  const std::size_t head = replaced_prefix_within(text, max_bytes);
  const std::size_t tail = replaced_suffix_within(text, max_bytes);
  require(head <= text.size() && tail <= text.size(), "cuts lie inside");
  const std::string first = replace_invalid_utf8(text.substr(0, head));
  const std::string last = replace_invalid_utf8(text.substr(tail));
  require(first.size() <= max_bytes && last.size() <= max_bytes, "what is kept is bounded");
  require(replaced.starts_with(first), "the head is the text's head");
  require(replaced.ends_with(last), "the tail is the text's tail");
  require(head == text.size() || first.size() + 4 > max_bytes, "the head is not cut needlessly");
}

}  // namespace

void fuzz_utf8(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte() % 16;
  const std::size_t max_bytes = input.byte();
  const std::string_view text = input.rest();

  const std::string replaced = replace_invalid_utf8(text);
  require(is_valid_utf8(replaced), "what is replaced is text");
  require(replaced_size(text) == replaced.size(), "its size is known before");
  require(is_valid_utf8(text) == (replaced == text), "text is left as it is, and only text is");
  std::string encoded;
  for (const char32_t c : decode_utf8(text)) encoded += encode_utf8(c);
  require(encoded == replaced, "code points are those of the text");
  check_decoder(text, piece, replaced);
  check_cuts(text, max_bytes, replaced);

  const std::size_t boundary = character_boundary_before(replaced, max_bytes);
  require(boundary <= max_bytes && is_valid_utf8(replaced.substr(0, boundary)),
          "text cut at a boundary is text");
  const std::string shown = escape_for_display(text, max_bytes);
  require(is_valid_utf8(shown) && shown.size() <= max_bytes + 3, "what is shown is bounded text");
  require(std::ranges::none_of(shown, [](char c) { return c >= 0 && (c < 0x20 || c == 0x7F); }),
          "what is shown is one line without controls");
  require(is_valid_utf8(normalise_nfc(replaced)) && is_valid_utf8(lower_case(replaced)),
          "text stays text");
  require(normalise_nfc(normalise_nfc(replaced)) == normalise_nfc(replaced),
          "composing twice changes nothing");
}

}  // namespace casemate::fuzz
