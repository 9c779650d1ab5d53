#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace casemate {

// The one spelling of the address that `text` is, as inet_ntop writes it; nothing when it is none
// of that family (AF_INET or AF_INET6). Stricter than what resolvers take: four decimal numbers, no
// octal, nothing left out; no zone, no brackets. A NUL ends nothing here.
//
// No dependency but the standard library: linked into the static guest program too.
std::optional<std::string> canonical_address(int family, std::string_view text);

}  // namespace casemate
