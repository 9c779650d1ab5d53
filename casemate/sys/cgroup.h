#pragma once

#include <string>

namespace casemate::sys {

// Removes the control group at `path` (an absolute path in a cgroup file system) and the groups
// below it. Returns 0, also when it is missing, or the errno of the first that stayed: EBUSY while
// a process is in it. Only directories are touched; the kernel's files in them go with the group.
int remove_control_group(const std::string& path) noexcept;

}  // namespace casemate::sys
