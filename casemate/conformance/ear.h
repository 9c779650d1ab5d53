#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::conformance {

// A socket on this host's loopback that nothing in a sandbox may reach, by the ways that web
// clients do not go: datagrams, and IPv6.
class Ear {
 public:
  enum class Way : std::uint8_t { udp_ipv4, udp_ipv6, tcp_ipv6 };

  // Nothing where this host has no such address. Throws `std::system_error`.
  static std::optional<Ear> listen(Way way);

  // "udp 127.0.0.1 4711": how, where, and at which port.
  const std::string& place() const { return place_; }
  // Whether anything came since. Sends something itself first, and throws `Unmet` when that does
  // not arrive: an ear that hears nothing at all proves nothing.
  bool heard();

 private:
  Ear(Way way, sys::UniqueFd socket, std::uint16_t port);

  Way way_;
  sys::UniqueFd socket_;
  std::uint16_t port_;
  std::string place_;
};

}  // namespace casemate::conformance
