#pragma once

// A call's way out as the seam sees it: who serves it, and what is known of it afterwards. The
// bytes between a door in the guest and the host: egress_frame.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/egress_frame.h"
#include "casemate/core/host_pattern.h"

namespace casemate {

enum class EgressDecision : std::uint8_t { allowed, denied };
std::string_view to_string(EgressDecision decision);

// Whether a TLS client has to name the host of its tunnel (docs/egress.md).
enum class ServerNameCheck : std::uint8_t { yes, no };

// One decision and what came of it. Strings are valid UTF-8.
struct EgressRecord {
  // As the program asked for it, canonical where it is well-formed, else escaped.
  std::string host{};
  // 0 where the request was malformed.
  std::uint16_t port = 0;
  EgressDecision decision = EgressDecision::denied;
  // Of an allowed one "ALLOWED BY ENTRY", and what went wrong or ended it early behind it; of a
  // denied one why.
  std::string reason{};
  // Of the tunnel's contents: from the program, and to it.
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  friend bool operator==(const EgressRecord&, const EgressRecord&) = default;
};

// What one call's programs reach, served by the host. A backend makes one for each call whose mode
// is `allowlist` (egress/gateway.h has the one that dials) and hands the socket in like that of
// host tools.
class CallEgress {
 public:
  virtual ~CallEgress() = default;

  // An unbound Unix stream socket, to be given an address that only this call's programs reach.
  // Borrowed.
  virtual int socket() const = 0;
  // Once it was bound: takes connections from now on. Throws `std::system_error`.
  virtual void serve() = 0;
  // Ends every tunnel and takes no more. Idempotent; never throws.
  virtual void close() noexcept = 0;
  // Decisions so far, in the order they were made; complete after `close`. At most
  // `kMaxEgressRecords`: what has none is counted in the last one's reason. From any thread.
  virtual std::vector<EgressRecord> records() const = 0;
};

inline constexpr std::size_t kMaxEgressRecords = 1000;

// What the guest's doors have to know of a list: entries of one host put together, ports written
// out. Throws `InvalidArgument` for more than `kMaxDoorRules` hosts or `kMaxDoorPorts` ports of
// one.
std::vector<EgressDoorRule> door_rules(const std::vector<HostPattern>& allow);

// The ports an entry without one covers.
inline constexpr std::uint16_t kHttpPort = 80;
inline constexpr std::uint16_t kHttpsPort = 443;

}  // namespace casemate
