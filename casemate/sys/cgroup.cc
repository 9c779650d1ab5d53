#include "casemate/sys/cgroup.h"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace casemate::sys {

int remove_control_group(const std::string& path) noexcept {
  if (rmdir(path.c_str()) == 0 || errno == ENOENT) return 0;
  // Somebody is below it: groups, or processes. The tree is of our own making and a few levels
  // deep.
  const int reason = errno;
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) return errno == ENOENT ? 0 : errno;
  int first = 0;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (entry->d_type != DT_DIR || name == "." || name == "..") continue;
    const int error = remove_control_group(path + "/" + entry->d_name);
    if (first == 0) first = error;
  }
  closedir(stream);
  if (rmdir(path.c_str()) == 0 || errno == ENOENT) return 0;
  return first != 0 ? first : reason;
}

}  // namespace casemate::sys
