#include "casemate/guest/runtime_rest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <vector>

#include "casemate/sys/cgroup.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr std::size_t kMaxMountsBytes = 16 << 20;

// Mount points of the hierarchies of control groups, in the text of /proc/self/mountinfo.
std::vector<std::string> hierarchies(std::string_view mounts) {
  std::vector<std::string> points;
  while (!mounts.empty()) {
    std::string_view line = mounts.substr(0, mounts.find('\n'));
    mounts.remove_prefix(std::min(line.size() + 1, mounts.size()));
    if (line.find(" - cgroup") == line.npos) continue;
    for (int field = 1; field < 5; ++field) {
      line.remove_prefix(std::min(line.find(' ') + 1, line.size()));
    }
    points.emplace_back(line.substr(0, line.find(' ')));
  }
  return points;
}

// Files only: a runtime has nothing else there.
bool remove_record(const std::string& state_directory, const std::string& id) {
  const std::string path = state_directory + "/" + id;
  const sys::UniqueFd directory(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return errno == ENOENT;
  for (const std::string& name : sys::list_directory_at(directory.get(), ".")) {
    unlinkat(directory.get(), name.c_str(), 0);
  }
  return rmdir(path.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::string runtime_group(std::string_view id) { return "/casemate-runtime-" + std::string(id); }

bool remove_runtime_rest(const std::string& state_directory, const std::string& id) noexcept {
  try {
    bool gone = remove_record(state_directory, id);
    const std::string mounts = sys::read_file_at(AT_FDCWD, "/proc/self/mountinfo", kMaxMountsBytes);
    for (const std::string& point : hierarchies(mounts)) {
      if (sys::remove_control_group(point + runtime_group(id)) != 0) gone = false;
    }
    return gone;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace casemate::guest
