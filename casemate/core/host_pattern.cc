#include "casemate/core/host_pattern.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate {
namespace {

constexpr std::size_t kMaxLabel = 63;  // RFC 1035, section 2.3.4
constexpr std::size_t kMaxName = 253;  // the same 255 octets, written as text

[[noreturn]] void refuse(std::string_view entry, std::string_view rule) {
  throw InvalidArgument(
      fmt::format("egress entry '{}' is refused: {}", escape_for_display(entry), rule),
      "write a host name, *.suffix or an IP address, each with an optional :port");
}

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

// What no entry of any form may hold, said before a form is guessed, so that the text fits.
void refuse_foreign_characters(std::string_view entry) {
  if (entry.empty()) {
    refuse(entry, "it is empty");
  }
  if (entry.find("://") != std::string_view::npos) {
    refuse(entry, "it has a scheme; an entry is a host, not an address of a page");
  }
  for (const char character : entry) {
    if (character == '/') {
      refuse(entry, "it has a slash; paths and ranges of addresses are not accepted");
    }
    if (character == ',') {
      refuse(entry, "it has a comma; give each host as an entry of its own");
    }
    if (character == ' ' || (character >= '\t' && character <= '\r')) {
      refuse(entry, "it has white space");
    }
    if (static_cast<unsigned char>(character) < 0x20 || character == '\x7f') {
      refuse(entry, "it has a control character");
    }
    if (character == '@') {
      refuse(entry, "it names a user; an entry is a host only");
    }
  }
}

std::uint16_t parse_port(std::string_view entry, std::string_view digits) {
  std::uint32_t port = 0;
  const bool decimal =
      !digits.empty() && digits.size() <= 5 && std::ranges::all_of(digits, is_digit);
  if (!decimal || std::from_chars(digits.begin(), digits.end(), port).ptr != digits.end() ||
      port < 1 || port > 65535) {
    refuse(entry, "its port is not a number from 1 to 65535");
  }
  return static_cast<std::uint16_t>(port);
}

// The canonical text of an address, or nothing when `text` is none.
std::optional<std::string> canonical_address(int family, const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::array<char, INET6_ADDRSTRLEN> canonical{};
  // Stricter than inet_aton: four decimal parts, no octal, nothing left out.
  if (inet_pton(family, text.c_str(), bytes.data()) != 1 ||
      inet_ntop(family, bytes.data(), canonical.data(), canonical.size()) == nullptr) {
    return std::nullopt;
  }
  return std::string(canonical.data());
}

void check_labels(std::string_view entry, std::string_view name) {
  if (name.size() > kMaxName) {
    refuse(entry,
           fmt::format("its name has {} bytes, over the limit of {}", name.size(), kMaxName));
  }
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t dot = std::min(name.find('.', start), name.size());
    const std::string_view label = name.substr(start, dot - start);
    if (label.empty()) {
      refuse(entry, "it has an empty label (two dots, or a dot in front)");
    }
    if (label.size() > kMaxLabel) {
      refuse(entry,
             fmt::format("a label has {} bytes, over the limit of {}", label.size(), kMaxLabel));
    }
    for (const char character : label) {
      if (character == '*') {
        refuse(entry, "'*' may only stand as the whole first label (*.suffix)");
      }
      if (!is_letter_or_digit(character) && character != '-') {
        refuse(entry,
               "it has a character other than letters, digits, hyphens and dots; write an "
               "international name in its xn-- form");
      }
    }
    if (label.front() == '-' || label.back() == '-') {
      refuse(entry, "a label begins or ends with a hyphen");
    }
    start = dot + 1;
  }
}

// A name whose last label is a number is an address to every resolver (WHATWG URL, section 3.5).
bool looks_like_an_address(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return std::ranges::all_of(last, is_digit) ||
         (last.starts_with("0x") &&
          last.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos);
}

}  // namespace

HostPattern::HostPattern(Form form, std::string host, std::optional<std::uint16_t> port)
    : form_(form), host_(std::move(host)), port_(port) {}

HostPattern HostPattern::parse(std::string_view entry) {
  refuse_foreign_characters(entry);
  std::string_view host = entry;
  std::optional<std::uint16_t> port;

  if (host.front() == '[') {
    const std::size_t close = host.find(']');
    if (close == std::string_view::npos) {
      refuse(entry, "its bracket is not closed");
    }
    const std::string_view after = host.substr(close + 1);
    if (!after.empty()) {
      if (after.front() != ':') {
        refuse(entry, "only :port may follow the bracket");
      }
      port = parse_port(entry, after.substr(1));
    }
    const auto address = canonical_address(AF_INET6, std::string(host.substr(1, close - 1)));
    if (!address) {
      refuse(entry, "there is no IPv6 address in the brackets (a zone is not accepted)");
    }
    return {Form::address, *address, port};
  }

  const std::size_t colon = host.find(':');
  if (colon != std::string_view::npos) {
    if (host.find(':', colon + 1) != std::string_view::npos) {
      refuse(entry, "it has several colons; write an IPv6 address in brackets");
    }
    port = parse_port(entry, host.substr(colon + 1));
    host = host.substr(0, colon);
    if (host.empty()) {
      refuse(entry, "it has a port and no host");
    }
  }
  std::string name = lower_ascii(host);
  if (name.ends_with('.')) {
    name.pop_back();
  }
  if (const auto address = canonical_address(AF_INET, name)) {
    return {Form::address, *address, port};
  }
  Form form = Form::name;
  if (name.starts_with("*.")) {
    form = Form::suffix;
    name.erase(0, 2);
  }
  check_labels(entry, name);
  if (looks_like_an_address(name)) {
    refuse(entry, "it is a malformed IP address; four decimal numbers of 0 to 255 are accepted");
  }
  if (form == Form::suffix && name.find('.') == std::string::npos) {
    refuse(entry, "its suffix is a single label, which would cover a whole top-level domain");
  }
  return {form, std::move(name), port};
}

std::string HostPattern::text() const {
  std::string text = host_;
  if (form_ == Form::suffix) {
    text.insert(0, "*.");
  } else if (form_ == Form::address && host_.find(':') != std::string::npos) {
    text = fmt::format("[{}]", host_);
  }
  if (port_) {
    text += fmt::format(":{}", *port_);
  }
  return text;
}

}  // namespace casemate
