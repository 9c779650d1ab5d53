#include "casemate/policy/host_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace casemate::policy {
namespace {

template <typename Value>
std::set<Value> common(const std::set<Value>& left, const std::set<Value>& right) {
  std::set<Value> both;
  std::ranges::set_intersection(left, right, std::inserter(both, both.end()));
  return both;
}

}  // namespace

std::optional<PendingRefusal> match_host_policy(const SandboxSpec& spec, const HostPolicy& policy) {
  const CapabilitySet capabilities = common(spec.requires_capabilities, policy.denied_capabilities);
  if (!capabilities.empty()) {
    return pending<SandboxCapabilityDenied>(
        fmt::format("kind {} requires {}, which this host denies; it denies {}", quoted(spec.kind),
                    join_names(capabilities), join_names(policy.denied_capabilities)),
        fmt::format("drop {} from the spec's requires_capabilities, or from the host's "
                    "denied_capabilities",
                    join_names(capabilities)));
  }
  const std::set<Identity> identities = common(spec.identities, policy.denied_identities);
  if (!identities.empty()) {
    return pending<SandboxIdentityDenied>(
        fmt::format("kind {} acts under identity {}, which this host denies; it denies {}",
                    quoted(spec.kind), join_names(identities),
                    join_names(policy.denied_identities)),
        fmt::format("wire nothing that acts under {}, or drop it from the host's "
                    "denied_identities",
                    join_names(identities)));
  }
  return std::nullopt;
}

}  // namespace casemate::policy
