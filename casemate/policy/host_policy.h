#pragma once

// Steps 1 and 2 of `SandboxRouter::ensure_can_serve`. For the router itself; hosts use `router.h`.

#include <optional>
#include <set>

#include "casemate/core/spec.h"
#include "casemate/core/spec_match.h"
#include "casemate/core/vocabulary.h"

namespace casemate::policy {

// What the host said, whatever the backend.
struct HostPolicy {
  Isolation min_isolation = Isolation::microvm;
  CapabilitySet denied_capabilities{};
  std::set<Identity> denied_identities{};
};

// Steps 1 and 2: what no backend may serve.
std::optional<PendingRefusal> match_host_policy(const SandboxSpec& spec, const HostPolicy& policy);

}  // namespace casemate::policy
