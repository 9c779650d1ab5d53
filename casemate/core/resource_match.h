#pragma once

// Which resource bounds of a spec a backend can hold. Pure; asked by the router before anything
// starts and by backends for `SandboxInfo::limits_not_held`.

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "casemate/core/declarations.h"
#include "casemate/core/limits.h"
#include "casemate/core/vocabulary.h"

namespace casemate {

// A bound that the backend does not hold.
struct UnheldBound {
  // The field of `Resources`, a string literal.
  std::string_view field;
  Limit limit = Limit::memory;
  std::uint64_t value = 0;
  // The caller stated it, so it must be refused; a default only shows as not held.
  bool stated = false;
  friend bool operator==(const UnheldBound&, const UnheldBound&) = default;
};

// In the order of the fields of `Resources`. A bound is held when its limit is among the declared
// `enforceable_limits`; `cpu_seconds` needs `cpu_seconds_enforceable` as well.
std::vector<UnheldBound> unheld_bounds(const Resources& resources,
                                       const BackendDeclarations& declared);

// The limits of the *default* bounds that are not held: the sandbox runs without them and says so.
std::set<Limit> limits_not_held(const Resources& resources, const BackendDeclarations& declared);

}  // namespace casemate
