#pragma once

// Whether a backend's declarations serve a spec, as pure functions: the router asks before anything
// starts, and a backend's own `acquire` asks the same for a spec that came by no router. Hosts use
// `policy/router.h`.

#include <optional>
#include <string>
#include <string_view>

#include "casemate/core/declarations.h"
#include "casemate/core/errors.h"
#include "casemate/core/spec.h"
#include "casemate/core/vocabulary.h"

namespace casemate {

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

// Steps 3 to 9 of `SandboxRouter::ensure_can_serve`, in that order; the first that refuses.
std::optional<PendingRefusal> match_declarations(const SandboxSpec& spec, Isolation host_floor,
                                                 const BackendDeclarations& declared);

// The check at construction: step 3 without a spec.
std::optional<PendingRefusal> match_host_floor(Isolation host_floor,
                                               const BackendDeclarations& declared);

// Text of a caller's or a backend's in quotes, safe for one line.
std::string quoted(std::string_view text);

}  // namespace casemate
