#include "casemate/guest/agent/doors/authority.h"

#include <netinet/in.h>

#include <algorithm>

#include "casemate/core/address_text.h"

namespace casemate::guest {
namespace {

constexpr std::size_t kMaxLabel = 63;  // RFC 1035, section 2.3.4
constexpr std::size_t kMaxName = 253;

bool is_digit(char each) { return each >= '0' && each <= '9'; }

bool is_name_character(char each) {
  return (each >= 'a' && each <= 'z') || is_digit(each) || each == '-' || each == '_';
}

}  // namespace

std::optional<std::uint16_t> parse_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.front() == '0' ||
      !std::ranges::all_of(text, is_digit)) {
    return std::nullopt;
  }
  std::uint32_t port = 0;
  for (const char digit : text) port = port * 10 + static_cast<std::uint32_t>(digit - '0');
  if (port > 65535) return std::nullopt;
  return static_cast<std::uint16_t>(port);
}

std::optional<std::string> parse_host(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxName) return std::nullopt;
  std::string host(text);
  for (char& each : host) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  std::size_t label = 0;
  for (const char each : host) {
    if (each == '.') {
      if (label == 0) return std::nullopt;
      label = 0;
    } else if (!is_name_character(each) || ++label > kMaxLabel) {
      return std::nullopt;
    }
  }
  if (label == 0) return std::nullopt;
  return host;
}

std::optional<Authority> parse_authority(std::string_view text) {
  Authority found;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const auto address = canonical_address(AF_INET6, text.substr(1, close - 1));
    if (!address) return std::nullopt;
    found.host = *address;
    text.remove_prefix(close + 1);
  } else {
    const std::size_t end = std::min(text.find(':'), text.size());
    const auto host = parse_host(text.substr(0, end));
    if (!host) return std::nullopt;
    found.host = *host;
    text.remove_prefix(end);
  }
  if (text.empty()) return found;
  if (text.front() != ':') return std::nullopt;
  found.port = parse_port(text.substr(1));
  if (!found.port) return std::nullopt;
  return found;
}

std::string authority_text(std::string_view host, std::uint16_t port) {
  std::string text(host);
  if (host.find(':') != std::string_view::npos) text = "[" + text + "]";
  return text + ":" + std::to_string(port);
}

}  // namespace casemate::guest
