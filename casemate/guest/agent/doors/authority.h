#pragma once

// Who a client of a door wants to talk to, as text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate::guest {

// A host and perhaps a port, canonical: a name in lower case without its trailing dot, or an
// address as inet_ntop writes it, IPv6 without brackets. What can be neither a listed name nor a
// listed address is not refused here for that: the host decides, and keeps the record.
struct Authority {
  std::string host;
  std::optional<std::uint16_t> port;
  friend bool operator==(const Authority&, const Authority&) = default;
};

// 1 to 5 digits, 1..65535, no leading zero.
std::optional<std::uint16_t> parse_port(std::string_view text);

// A name or an IPv4 address without a port; `[...]` is none. Letters, digits, '-', '_' and dots
// between labels of 1 to 63 bytes, at most 253 in all: so no NUL, no percent sign, nothing beyond
// ASCII, no user in front.
std::optional<std::string> parse_host(std::string_view text);

// `host`, `host:port`, `[v6]` or `[v6]:port`; a zone is refused.
std::optional<Authority> parse_authority(std::string_view text);

// The other way round, for headers and tunnels: an IPv6 address in brackets.
std::string authority_text(std::string_view host, std::uint16_t port);

}  // namespace casemate::guest
