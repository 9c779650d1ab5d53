#include "apps/casemate/host_variable.h"

#include <cstdlib>

namespace casemate::app {

std::optional<std::string> host_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace casemate::app
