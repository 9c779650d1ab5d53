#pragma once

#include <string_view>

namespace casemate::app {

inline constexpr std::string_view kVersion = CASEMATE_VERSION;

}  // namespace casemate::app
