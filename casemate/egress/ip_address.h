#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace casemate {

// An address as it is dialled.
struct IpAddress {
  enum class Family : std::uint8_t { ipv4, ipv6 };
  Family family = Family::ipv4;
  // Network order; of an IPv4 address the first four, the others 0.
  std::array<std::uint8_t, 16> bytes{};

  // As inet_pton reads it; nothing for anything else.
  static std::optional<IpAddress> parse(const std::string& text);
  std::string text() const;
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;
};

// Where an address leads. Only `public_internet` may be the answer to a name.
enum class AddressClass : std::uint8_t {
  // The documentation ranges among it: nothing is there.
  public_internet,
  // 0.0.0.0/8, ::; Linux takes it for loopback.
  unspecified,
  loopback,
  // RFC 1918, unique local fc00::/7, site local fec0::/10.
  private_network,
  link_local,
  // 100.64.0.0/10, between a provider and its customers.
  carrier_nat,
  // What cloud machines learn their credentials from: 169.254.169.254, 168.63.129.16,
  // 100.100.100.200, 192.0.0.192, fd00:ec2::254, fd20:ce::254.
  metadata_service,
  multicast,
  // 2001::/32: carries two IPv4 addresses, and no service lives there.
  teredo,
  // Broadcast, benchmarking, protocol assignments, and all of IPv6 that is given to nobody.
  reserved,
};

std::string_view to_string(AddressClass address_class);

// By the address that a packet ends up at: IPv4-mapped, IPv4-compatible, NAT64 (64:ff9b::/96), 6to4
// and ISATAP addresses are classed by the IPv4 address they hold. By the IANA special-purpose
// registries (RFC 6890 and later).
AddressClass classify(const IpAddress& address);

}  // namespace casemate
