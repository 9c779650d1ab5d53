#pragma once

// What the doors pretend: which hosts have an address in here, and at which ports somebody answers.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/egress_frame.h"
#include "casemate/guest/agent/doors/dns_message.h"

namespace casemate::guest {

// Addresses that are this machine's own, for names to be given.
struct AddressRange {
  Ipv4Bytes first{};
  std::uint32_t count = 0;
};

// RFC 2544's block for measurements, which is in use nowhere; its first address is the interface's.
inline constexpr AddressRange kSyntheticAddresses{.first = {198, 18, 0, 2},
                                                  .count = (1U << 17) - 3};
// Loopback for everybody, so it needs no right over the network.
inline constexpr AddressRange kLoopbackAddresses{.first = {127, 64, 0, 1}, .count = (1U << 22) - 2};

// Names that get an address; a program that asks for more below its wildcards has the proxy.
inline constexpr std::size_t kMaxNamesGiven = 1024;

class DoorNames {
 public:
  DoorNames(std::vector<EgressDoorRule> rules, AddressRange range);

  // Of a canonical name or address (`Authority::host`): the ports that the list has for it, empty
  // when it has none.
  std::set<std::uint16_t> ports_of(std::string_view host) const;
  bool has(std::string_view host, std::uint16_t port) const {
    return ports_of(host).contains(port);
  }

  // Addresses of the list.
  std::vector<EgressDoorRule> literals() const;

  // The address of a name that the list has, always the same; none once `kMaxNamesGiven` have
  // theirs.
  std::optional<Ipv4Bytes> give(const std::string& name);

 private:
  std::vector<EgressDoorRule> suffixes_;
  std::map<std::string, std::set<std::uint16_t>, std::less<>> exact_;
  std::vector<EgressDoorRule> literals_;
  AddressRange range_;
  std::uint32_t next_ = 0;
  std::map<std::string, Ipv4Bytes, std::less<>> given_;
};

// "198.18.0.2".
std::string address_text(const Ipv4Bytes& address);

}  // namespace casemate::guest
