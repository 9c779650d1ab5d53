#pragma once

#include <functional>
#include <optional>
#include <string>

namespace casemate::app {

// The value of a variable of the host's environment; absent when it is not set. A parameter where a
// test needs to hold it.
using HostVariable = std::function<std::optional<std::string>(const std::string& name)>;

// That of this process.
std::optional<std::string> host_variable(const std::string& name);

}  // namespace casemate::app
