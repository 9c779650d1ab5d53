#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/casemate/help.h"

namespace casemate::app {

// What a shell sources to complete `casemate`: verbs, options, and the values that are known or are
// files. Made from the tables alone, so that nothing is started while somebody types. `shell` is
// "bash", "zsh" or "fish"; throws `InvalidArgument` naming the nearest for anything else.
std::string completion_script(std::string_view shell, std::span<const VerbSpec* const> verbs);

inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

}  // namespace casemate::app
