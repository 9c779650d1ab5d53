// JSON of strangers, against a second reader of the grammar that knows nothing of values.

#include "casemate/base/json.h"

#include <boost/json.hpp>
#include <cstddef>
#include <optional>
#include <set>
#include <string>

#include "casemate/base/utf8.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

// Whether a text keeps to RFC 8259 and to the bounds, by recursive descent. It does not judge the
// size of numbers, and reads a key by its raw spelling, so it sees twice only what is spelled
// alike.
class Grammar {
 public:
  explicit Grammar(std::string_view text) : rest_(text) {}

  bool accepts() {
    space();
    if (!value(0)) return false;
    space();
    return rest_.empty();
  }

 private:
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  bool value(std::size_t depth) {
    if (rest_.empty()) return false;
    switch (rest_.front()) {
      case '{':
        return depth < 64 && object(depth + 1);
      case '[':
        return depth < 64 && array(depth + 1);
      case '"':
        return string().has_value();
      case 't':
        return take("true");
      case 'f':
        return take("false");
      case 'n':
        return take("null");
      default:
        return number();
    }
  }

  bool object(std::size_t depth) {
    std::set<std::string_view> keys;
    take('{');
    space();
    if (take('}')) return true;
    while (true) {
      const auto key = string();
      if (!key || !keys.insert(*key).second) return false;
      space();
      if (!take(':')) return false;
      space();
      if (!value(depth)) return false;
      space();
      if (take('}')) return true;
      if (!take(',')) return false;
      space();
    }
  }

  bool array(std::size_t depth) {
    take('[');
    space();
    if (take(']')) return true;
    while (true) {
      if (!value(depth)) return false;
      space();
      if (take(']')) return true;
      if (!take(',')) return false;
      space();
    }
  }

  // The raw text between the quotes.
  std::optional<std::string_view> string() {
    if (!take('"')) return std::nullopt;
    const std::string_view begin = rest_;
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '"') {
        const std::string_view raw = begin.substr(0, begin.size() - rest_.size());
        rest_.remove_prefix(1);
        return is_valid_utf8(raw) ? std::optional(raw) : std::nullopt;
      }
      if (static_cast<unsigned char>(c) < 0x20) return std::nullopt;
      rest_.remove_prefix(1);
      if (c == '\\' && !escape()) return std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<unsigned> four_digits() {
    unsigned code = 0;
    if (rest_.size() < 4) return std::nullopt;
    for (int i = 0; i < 4; ++i) {
      const char c = rest_.front();
      const std::size_t digit = std::string_view("0123456789abcdef")
                                    .find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
      if (digit == std::string_view::npos) return std::nullopt;
      code = code * 16 + static_cast<unsigned>(digit);
      rest_.remove_prefix(1);
    }
    return code;
  }

  bool escape() {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    const auto first = four_digits();
    if (!first || (*first >= 0xDC00 && *first < 0xE000)) return false;
    if (*first < 0xD800 || *first >= 0xE000) return true;
    if (!take("\\u")) return false;
    const auto second = four_digits();
    return second && *second >= 0xDC00 && *second < 0xE000;
  }

  bool digits() {
    const std::size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    rest_.remove_prefix(count);
    return count > 0;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!digits()) return false;
    }
    return true;
  }

  std::string_view rest_;
};

}  // namespace

void fuzz_json(std::string_view bytes) {
  boost::json::value value;
  try {
    value = parse_json(bytes);
  } catch (const JsonError& error) {
    const std::string_view what = error.what();
    require(is_valid_utf8(what) && what.size() < 512, "a refusal is text, and bounded");
    // Refused beside the grammar: numbers that cannot be held, and keys that only look different.
    require(!Grammar(bytes).accepts() || what.find("integer") != std::string_view::npos ||
                what.find("overflows") != std::string_view::npos ||
                what.find("key") != std::string_view::npos ||
                what.find("exponent") != std::string_view::npos,
            "what the grammar has is read");
    return;
  }
  require(Grammar(bytes).accepts(), "what is read is in the grammar");
  const std::string text = serialise_json(value);
  require(is_valid_utf8(text) && text.find('\n') == std::string::npos,
          "what is written is one line of text");
  require(parse_json(text) == value, "what is written reads back the same");
  require(serialise_json(parse_json(text)) == text, "there is one written form");
}

}  // namespace casemate::fuzz
