#include "casemate/host_tools/declaration.h"

#include <fmt/format.h>

#include "casemate/core/errors.h"

namespace casemate {

void check_declaration(const HostToolDeclaration& declaration) {
  if (const auto source = declaration.source.get(); source && to_string(*source) == "unknown") {
    throw InvalidArgument(
        fmt::format("source {} is not one of untrusted, trusted", static_cast<unsigned>(*source)));
  }
  if (const auto identity = declaration.identity.get();
      identity && to_string(*identity) == "unknown") {
    throw InvalidArgument(
        fmt::format("identity {} is not one of app, user", static_cast<unsigned>(*identity)));
  }
}

}  // namespace casemate
