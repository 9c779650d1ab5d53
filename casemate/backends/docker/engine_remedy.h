#pragma once

#include <string>

#include "casemate/local/diagnosis.h"

namespace casemate::docker {

enum class Installed : bool { no, yes };
// Docker Engine, on this machine.
Installed is_engine_installed() noexcept;

// What helps where connecting to an engine's socket failed with that errno, for the user of that
// name (empty: it has none). Empty where nothing is known to help. Never throws.
local::Remedy remedy_for_socket(const std::string& path, int error, const std::string& user,
                                Installed installed);

}  // namespace casemate::docker
