#include "casemate/egress/ip_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>

namespace casemate {
namespace {

using Class = AddressClass;

constexpr std::size_t kIpv4Bytes = 4;

struct Prefix {
  const char* network;
  unsigned bits;
  Class means;
};

// The first that fits counts.
constexpr Prefix kIpv4[] = {
    {"169.254.169.254", 32, Class::metadata_service},
    {"168.63.129.16", 32, Class::metadata_service},
    {"100.100.100.200", 32, Class::metadata_service},
    {"192.0.0.192", 32, Class::metadata_service},
    {"0.0.0.0", 8, Class::unspecified},
    {"10.0.0.0", 8, Class::private_network},
    {"100.64.0.0", 10, Class::carrier_nat},
    {"127.0.0.0", 8, Class::loopback},
    {"169.254.0.0", 16, Class::link_local},
    {"172.16.0.0", 12, Class::private_network},
    {"192.0.0.0", 24, Class::reserved},
    {"192.88.99.0", 24, Class::reserved},
    {"192.168.0.0", 16, Class::private_network},
    {"198.18.0.0", 15, Class::reserved},
    {"224.0.0.0", 4, Class::multicast},
    {"240.0.0.0", 4, Class::reserved},
};

constexpr Prefix kIpv6[] = {
    {"fd00:ec2::254", 128, Class::metadata_service},
    {"fd20:ce::254", 128, Class::metadata_service},
    {"::", 128, Class::unspecified},
    {"::1", 128, Class::loopback},
    {"fe80::", 10, Class::link_local},
    {"fc00::", 7, Class::private_network},
    {"fec0::", 10, Class::private_network},
    {"ff00::", 8, Class::multicast},
    {"2001::", 32, Class::teredo},
    {"2001::", 23, Class::reserved},
    {"2000::", 3, Class::public_internet},
    {"::", 0, Class::reserved},
};

// Ranges whose addresses hold an IPv4 address, and where in them.
struct Holder {
  const char* network;
  unsigned bits;
  std::size_t offset;
};
constexpr Holder kHolders[] = {
    {"::ffff:0:0", 96, 12},
    {"64:ff9b::", 96, 12},
    {"2002::", 16, 2},
};

IpAddress constant(const char* text) {
  const auto address = IpAddress::parse(text);
  if (!address) throw std::logic_error("a table of addresses has none");
  return *address;
}

bool is_within(const IpAddress& address, const char* network, unsigned bits) {
  const IpAddress base = constant(network);
  if (base.family != address.family) return false;
  for (std::size_t index = 0; bits > 0; ++index) {
    const unsigned here = std::min(bits, 8U);
    const auto mask = static_cast<std::uint8_t>(0xff00U >> here);
    if ((address.bytes[index] & mask) != (base.bytes[index] & mask)) return false;
    bits -= here;
  }
  return true;
}

Class by_table(const IpAddress& address, std::span<const Prefix> table) {
  for (const Prefix& prefix : table) {
    if (is_within(address, prefix.network, prefix.bits)) return prefix.means;
  }
  return Class::public_internet;
}

IpAddress ipv4_at(const IpAddress& address, std::size_t offset) {
  IpAddress held;
  std::memcpy(held.bytes.data(), address.bytes.data() + offset, kIpv4Bytes);
  return held;
}

std::optional<IpAddress> held_ipv4(const IpAddress& address) {
  for (const Holder& holder : kHolders) {
    if (is_within(address, holder.network, holder.bits)) return ipv4_at(address, holder.offset);
  }
  // IPv4-compatible, but for :: and ::1.
  const bool compatible = std::all_of(address.bytes.begin(), address.bytes.begin() + 12,
                                      [](std::uint8_t byte) { return byte == 0; });
  const bool small = address.bytes[12] == 0 && address.bytes[13] == 0 && address.bytes[14] == 0 &&
                     address.bytes[15] <= 1;
  if (compatible && !small) return ipv4_at(address, 12);
  // ISATAP: an interface identifier of 0000:5efe or 0200:5efe and the address (RFC 5214).
  if ((address.bytes[8] & 0xfd) == 0 && address.bytes[9] == 0 && address.bytes[10] == 0x5e &&
      address.bytes[11] == 0xfe) {
    return ipv4_at(address, 12);
  }
  return std::nullopt;
}

}  // namespace

std::optional<IpAddress> IpAddress::parse(const std::string& text) {
  IpAddress address;
  if (text.find('\0') != std::string::npos) return std::nullopt;
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) return address;
  address.family = Family::ipv6;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::string IpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> written{};
  inet_ntop(family == Family::ipv4 ? AF_INET : AF_INET6, bytes.data(), written.data(),
            written.size());
  return written.data();
}

std::string_view to_string(AddressClass address_class) {
  switch (address_class) {
    case Class::public_internet:
      return "public";
    case Class::unspecified:
      return "unspecified";
    case Class::loopback:
      return "loopback";
    case Class::private_network:
      return "private";
    case Class::link_local:
      return "link-local";
    case Class::carrier_nat:
      return "carrier NAT";
    case Class::metadata_service:
      return "metadata service";
    case Class::multicast:
      return "multicast";
    case Class::teredo:
      return "Teredo";
    case Class::reserved:
      break;
  }
  return "reserved";
}

AddressClass classify(const IpAddress& address) {
  if (address.family == IpAddress::Family::ipv4) return by_table(address, kIpv4);
  const Class outer = by_table(address, kIpv6);
  const std::optional<IpAddress> held = held_ipv4(address);
  if (!held) return outer;
  const Class inner = by_table(*held, kIpv4);
  if (inner != Class::public_internet) return inner;
  // A public address inside makes the holders' own ranges usable, and no other.
  const bool is_holder = std::ranges::any_of(kHolders, [&](const Holder& holder) {
    return is_within(address, holder.network, holder.bits);
  });
  return is_holder ? inner : outer;
}

}  // namespace casemate
