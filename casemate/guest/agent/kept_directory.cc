#include "casemate/guest/agent/kept_directory.h"

#include <unistd.h>

#include <cerrno>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/file.h"

namespace casemate::guest {

bool is_published(int directory) noexcept {
  try {
    const std::optional<std::string> path = sys::path_of(directory);
    if (!path) return false;
    const std::string_view parent = std::string_view(*path).substr(0, path->rfind('/'));
    return parent.ends_with(std::string("/") + kPublishedName);
  } catch (const std::exception&) {
    return true;
  }
}

// Files first: a name that another sandbox took in between stays, because its directory is not
// empty.
void remove_directory(int directory) noexcept {
  for (const char* name : {kAgentSocketName, kLeaseSocketName, kBusyLockName, kNextRecordName,
                           kRecordName, kContainerConfigName, kMachinePlanName}) {
    unlinkat(directory, name, 0);
  }
  try {
    while (const std::optional<std::string> path = sys::path_of(directory)) {
      if (rmdir(path->c_str()) == 0 || errno != ENOENT) return;
    }
  } catch (const std::exception&) {
  }
}

}  // namespace casemate::guest
