#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace casemate {

// What a call of a host tool gets: one JSON value as text, or a sentence that begins with "Error:".
// Never both, never neither.
class HostToolAnswer {
 public:
  static HostToolAnswer value(std::string json) { return {true, std::move(json)}; }
  // `reason` is one sentence for the program and the model behind it; "Error: " is put before it.
  static HostToolAnswer refused(std::string_view reason);

  bool ok() const { return ok_; }
  // The JSON text, or the refusal with its "Error: "; valid UTF-8.
  const std::string& text() const { return text_; }
  friend bool operator==(const HostToolAnswer&, const HostToolAnswer&) = default;

 private:
  HostToolAnswer(bool ok, std::string text) : ok_(ok), text_(std::move(text)) {}

  bool ok_;
  std::string text_;
};

// The most characters of what a program sent, or of why it does not fit, that a refusal repeats.
inline constexpr std::size_t kMaxQuotedCharacters = 120;

// The first characters of `text`, escaped for one line, and " (truncated)" when there are more.
std::string quote_bounded(std::string_view text);

}  // namespace casemate
