#pragma once

#include <vector>

#include "apps/casemate/config_place.h"
#include "apps/casemate/host_tool_setting.h"

namespace casemate::app {

// `[host_tools.NAME]`: `command`; `source`, `sink` and `identity`, all three or none ("none" says
// that there is none); `description`, `parameters` (a table or JSON text), `timeout`,
// `max_concurrency`. Throws `ConfigInvalid`.
std::vector<HostToolSetting> read_host_tools(const TomlValue& table, const ConfigPlace& place);

}  // namespace casemate::app
