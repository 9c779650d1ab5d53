#pragma once

// What a list lets through. Every door leads here, and nothing else decides.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/egress_frame.h"
#include "casemate/core/host_name.h"
#include "casemate/core/host_pattern.h"
#include "casemate/egress/ip_address.h"

namespace casemate {

// What is said of one request, before anything was resolved.
struct EgressVerdict {
  // `opened`: go on; else `not_on_list` or `malformed`.
  EgressCode code = EgressCode::malformed;
  // Canonical; of a malformed request empty.
  HostName host{};
  std::uint16_t port = 0;
  // The entry that allows it, as the operator's list has it.
  std::string entry{};
  // For the program, where it is refused: that it is policy where it is.
  std::string sentence{};
  // For the operator: the same in a few words.
  std::string reason{};
};

// Pure: no look-up, no clock. An entry's port counts where it has one, else 80 and 443. The door
// that a request came by, and what was decided before, change nothing.
EgressVerdict decide(const std::vector<HostPattern>& allow, const EgressRequest& request);

// Which of a name's addresses may be dialled.
struct AddressVerdict {
  // In their order; empty: none may.
  std::vector<IpAddress> permitted{};
  // Why not, for the operator; empty where there is one.
  std::string reason{};
};

// A name leads to public addresses only, whatever its list entry says. Others among its answers are
// left out.
AddressVerdict check_addresses(const std::vector<IpAddress>& resolved);

// What a program is told of a refusal by policy: that it is one, so that nobody hunts for a way
// round.
std::string policy_sentence(std::string_view what);

}  // namespace casemate
