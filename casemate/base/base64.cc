#include "casemate/base/base64.h"

#include <cstddef>
#include <cstdint>

namespace casemate {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t offset = 0; offset < 3; ++offset) {
      const auto byte =
          at + offset < bytes.size() ? static_cast<unsigned char>(bytes[at + offset]) : 0U;
      group = group << 8 | byte;
    }
    for (std::size_t digit = 0; digit < 4; ++digit) {
      const bool padding = at + digit > bytes.size();
      text += padding ? '=' : kAlphabet[group >> (18 - 6 * digit) & 63];
    }
  }
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string_view digits = text;
  for (int padding = 0; padding < 2 && digits.ends_with('='); ++padding) digits.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char digit : digits) {
    const auto value = kAlphabet.find(digit);
    if (value == kAlphabet.npos) return std::nullopt;
    held = held << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(held >> bits & 0xFF);
    held &= (1U << bits) - 1;
  }
  // What is left is less than a digit's worth, and says nothing.
  if (held != 0) return std::nullopt;
  return bytes;
}

}  // namespace casemate
