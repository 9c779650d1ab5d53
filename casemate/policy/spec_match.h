#pragma once

// The router's matching as pure functions: one a step of `SandboxRouter::ensure_can_serve`. For the
// router itself; hosts use `router.h`.

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "casemate/core/declarations.h"
#include "casemate/core/errors.h"
#include "casemate/core/spec.h"
#include "casemate/core/vocabulary.h"

namespace casemate::policy {

// A refusal that was not thrown yet, so that several can be compared and listed.
struct PendingRefusal {
  std::string_view code;
  std::string message;
  std::string hint;
  // Throws the refusal's class.
  void (*raise)(const std::string& message, const std::string& hint);
};

template <typename RefusalClass>
PendingRefusal pending(const std::string& message, const std::string& hint) {
  return {.code = RefusalClass("").code(),
          .message = message,
          .hint = hint,
          .raise = [](const std::string& text, const std::string& what_to_do) {
            throw RefusalClass(text, what_to_do);
          }};
}

// What the host said, whatever the backend.
struct HostPolicy {
  Isolation min_isolation = Isolation::microvm;
  CapabilitySet denied_capabilities{};
  std::set<Identity> denied_identities{};
};

// Steps 1 and 2: what no backend may serve.
std::optional<PendingRefusal> match_host_policy(const SandboxSpec& spec, const HostPolicy& policy);

// Steps 3 to 9, in that order; the first that refuses.
std::optional<PendingRefusal> match_declarations(const SandboxSpec& spec, Isolation host_floor,
                                                 const BackendDeclarations& declared);

// The check at construction: step 3 without a spec.
std::optional<PendingRefusal> match_host_floor(Isolation host_floor,
                                               const BackendDeclarations& declared);

// Text of a caller's or a backend's in quotes, safe for one line.
std::string quoted(std::string_view text);

}  // namespace casemate::policy
