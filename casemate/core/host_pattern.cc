#include "casemate/core/host_pattern.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <idn2.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <variant>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/host_name.h"
#include "casemate/core/public_suffix.h"

namespace casemate {
namespace {

// No name is as long, in whatever script.
constexpr std::size_t kMaxEntry = 1024;

[[noreturn]] void refuse(std::string_view entry, std::string_view rule) {
  throw InvalidArgument(
      fmt::format("egress entry '{}' is refused: {}",
                  escape_for_display(entry.substr(0, kMaxEntry)), rule),
      "write a host name, *.suffix or an IP address, each with an optional :port");
}

bool is_digit(char character) { return character >= '0' && character <= '9'; }

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text,
                             [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

// What no entry of any form may hold, said before a form is guessed, so that the text fits.
void refuse_foreign_characters(std::string_view entry) {
  if (entry.empty()) {
    refuse(entry, "it is empty");
  }
  if (entry.size() > kMaxEntry) {
    refuse(entry, fmt::format("it has {} bytes, over the limit of {}", entry.size(), kMaxEntry));
  }
  if (!is_valid_utf8(entry)) {
    refuse(entry, "it is not UTF-8");
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
  // IDNA takes them for dots (RFC 5895, section 2.3); to a reader they are something else.
  for (const std::string_view stop : {"\u3002", "\uff0e", "\uff61"}) {
    if (entry.find(stop) != std::string_view::npos) {
      refuse(entry, "it has a full stop of another script; write '.'");
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

HostName parse_host(std::string_view entry, std::string_view host) {
  auto parsed = parse_host_name(host);
  if (const auto* fault = std::get_if<std::string>(&parsed)) refuse(entry, *fault);
  return std::get<HostName>(std::move(parsed));
}

// An international name in the form that is asked of resolvers (IDNA 2008, mapped as UTS 46 does,
// without its transitional part).
std::string to_ascii(std::string_view entry, std::string_view host) {
  const std::string text(host);
  char* converted = nullptr;
  const int failure =
      idn2_to_ascii_8z(text.c_str(), &converted, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  if (failure != IDN2_OK) {
    refuse(entry, fmt::format("it is no international name ({})", idn2_strerror(failure)));
  }
  std::string ascii(converted);
  idn2_free(converted);
  // Digits of other scripts become ours, and a name an address.
  const auto parsed = parse_host_name(ascii);
  const auto* name = std::get_if<HostName>(&parsed);
  if (name != nullptr && name->form != HostName::Form::name) {
    refuse(entry, "an IP address is accepted in ASCII only");
  }
  return ascii;
}

// `xn--` promises something; a label that does not keep it is nobody's.
void check_encoded_labels(std::string_view entry, const std::string& name) {
  if (name.find("xn--") == std::string::npos) return;
  char* decoded = nullptr;
  const int failure = idn2_to_unicode_8z8z(name.c_str(), &decoded, 0);
  if (failure != IDN2_OK) {
    refuse(entry, fmt::format("an xn-- label is malformed ({})", idn2_strerror(failure)));
  }
  idn2_free(decoded);
}

void check_name(std::string_view entry, const std::string& name) {
  check_encoded_labels(entry, name);
  if (name == "localhost" || name.ends_with(".localhost")) {
    refuse(entry,
           "no name leads to this machine's own services; write the address (127.0.0.1:PORT)");
  }
  if (name.find('.') == std::string::npos && is_public_suffix(name)) {
    refuse(entry, "it is a top-level domain and no host");
  }
}

// What can be no TCP server's address, or cannot be had inside a sandbox as it is.
void check_address(std::string_view entry, const HostName& host,
                   std::optional<std::uint16_t> port) {
  constexpr std::uint16_t kResolver = 53;
  if (port == kResolver && (host.text == "127.0.0.1" || host.text == "::1")) {
    refuse(entry,
           "a sandbox's own resolver is there; have the server listen at another port or address");
  }
  constexpr std::string_view kNoServer = "no server can be there (it is a multicast address)";
  if (host.form == HostName::Form::ipv4) {
    in_addr address{};
    inet_pton(AF_INET, host.text.c_str(), &address);
    if (IN_MULTICAST(ntohl(address.s_addr))) refuse(entry, kNoServer);
    if (address.s_addr == INADDR_BROADCAST) {
      refuse(entry, "no server can be there (it is the broadcast address)");
    }
    return;
  }
  in6_addr address{};
  inet_pton(AF_INET6, host.text.c_str(), &address);
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    refuse(entry, fmt::format("it is an IPv4 address; write {}",
                              host.text.substr(host.text.rfind(':') + 1)));
  }
  if (IN6_IS_ADDR_MULTICAST(&address)) refuse(entry, kNoServer);
  if (IN6_IS_ADDR_LINKLOCAL(&address)) {
    refuse(entry, "it is link-local, which means nothing without an interface");
  }
}

void check_suffix(std::string_view entry, const std::string& suffix) {
  check_name(entry, suffix);
  if (suffix.find('.') == std::string::npos) {
    refuse(entry, "its suffix is a single label, which would cover a whole top-level domain");
  }
  if (is_public_suffix(suffix)) {
    refuse(entry, "its suffix is public: anybody can get a name below it");
  }
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
    auto inside = parse_host_name(host.substr(1, close - 1));
    auto* const address = std::get_if<HostName>(&inside);
    if (address == nullptr || address->form != HostName::Form::ipv6) {
      refuse(entry, "there is no IPv6 address in the brackets (a zone is not accepted)");
    }
    check_address(entry, *address, port);
    return {Form::address, std::move(address->text), port};
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
  const Form form = host.starts_with("*.") ? Form::suffix : Form::name;
  if (form == Form::suffix) host.remove_prefix(2);
  HostName parsed =
      is_ascii(host) ? parse_host(entry, host) : parse_host(entry, to_ascii(entry, host));
  if (parsed.form != HostName::Form::name) {
    if (form == Form::suffix) {
      refuse(entry, "its suffix is a malformed IP address: there is nothing below an address");
    }
    check_address(entry, parsed, port);
    return {Form::address, std::move(parsed.text), port};
  }
  if (form == Form::suffix) {
    check_suffix(entry, parsed.text);
  } else {
    check_name(entry, parsed.text);
  }
  return {form, std::move(parsed.text), port};
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
