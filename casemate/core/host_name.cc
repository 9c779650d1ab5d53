#include "casemate/core/host_name.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "casemate/core/address_text.h"

namespace casemate {
namespace {

constexpr std::size_t kMaxLabel = 63;  // RFC 1035, section 2.3.4
constexpr std::size_t kMaxName = 253;  // the same 255 octets, written as text

bool is_digit(char character) { return character >= '0' && character <= '9'; }

bool is_letter_or_digit(char character) {
  return (character >= 'a' && character <= 'z') || is_digit(character);
}

std::string lower_ascii(std::string_view text) {
  std::string lowered(text);
  for (char& character : lowered) {
    if (character >= 'A' && character <= 'Z') {
      character = static_cast<char>(character - 'A' + 'a');
    }
  }
  return lowered;
}

std::optional<std::string> fault_of_label(std::string_view label) {
  if (label.empty()) return "it has an empty label (two dots, or a dot in front)";
  if (label.size() > kMaxLabel) {
    return fmt::format("a label has {} bytes, over the limit of {}", label.size(), kMaxLabel);
  }
  for (const char character : label) {
    if (character == '*') return "'*' may only stand as the whole first label (*.suffix)";
    if (!is_letter_or_digit(character) && character != '-') {
      return "it has a character other than letters, digits, hyphens and dots";
    }
  }
  if (label.front() == '-' || label.back() == '-') return "a label begins or ends with a hyphen";
  return std::nullopt;
}

std::optional<std::string> fault_of_name(std::string_view name) {
  if (name.size() > kMaxName) {
    return fmt::format("its name has {} bytes, over the limit of {}", name.size(), kMaxName);
  }
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t dot = std::min(name.find('.', start), name.size());
    if (auto fault = fault_of_label(name.substr(start, dot - start))) return fault;
    start = dot + 1;
  }
  return std::nullopt;
}

// A name whose last label is a number is an address to every resolver (WHATWG URL, section 3.5).
bool looks_like_an_address(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return std::ranges::all_of(last, is_digit) ||
         (last.starts_with("0x") &&
          last.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos);
}

}  // namespace

std::variant<HostName, std::string> parse_host_name(std::string_view text) {
  std::string name = lower_ascii(text);
  if (name.find(':') != std::string::npos) {
    if (auto address = canonical_address(AF_INET6, name)) {
      return HostName{HostName::Form::ipv6, std::move(*address)};
    }
    return std::string("it is a malformed IPv6 address (a zone is not accepted)");
  }
  if (name.ends_with('.')) name.pop_back();
  if (auto address = canonical_address(AF_INET, name)) {
    return HostName{HostName::Form::ipv4, std::move(*address)};
  }
  if (auto fault = fault_of_name(name)) return std::move(*fault);
  if (looks_like_an_address(name)) {
    return std::string(
        "it is a malformed IP address; four decimal numbers of 0 to 255 are accepted");
  }
  return HostName{HostName::Form::name, std::move(name)};
}

}  // namespace casemate
