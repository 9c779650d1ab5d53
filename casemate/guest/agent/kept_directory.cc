#include "casemate/guest/agent/kept_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

// A host gives it three: while it is made, published, and while it ends.
constexpr int kMostNames = 16;

}  // namespace

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
    // By its parent, which a mount that came later does not hide. Its host may be giving it another
    // name.
    for (int tries = 0; tries < kMostNames; ++tries) {
      const std::optional<std::string> path = sys::path_of(directory);
      if (!path) return;
      const sys::UniqueFd parent = sys::open_at(directory, "..", O_PATH | O_DIRECTORY);
      const std::string name = path->substr(path->rfind('/') + 1);
      if (unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno != ENOENT) return;
    }
  } catch (const std::exception&) {
  }
}

}  // namespace casemate::guest
