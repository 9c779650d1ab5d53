#include "casemate/backends/microvm/saved_machines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::microvm {
namespace {

struct Saved {
  std::string name;
  time_t used = 0;
};

}  // namespace

void prune_saved_machines(const std::string& directory, std::chrono::hours unused,
                          std::size_t most) noexcept {
  try {
    const sys::UniqueFd opened =
        sys::open_at(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    std::vector<Saved> found;
    for (const std::string& name : sys::list_directory_at(opened.get(), ".")) {
      struct stat status{};
      if (fstatat(opened.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        found.push_back({name, status.st_mtim.tv_sec});
      }
    }
    std::sort(found.begin(), found.end(),
              [](const Saved& left, const Saved& right) { return left.used > right.used; });
    const time_t oldest = time(nullptr) - std::chrono::seconds(unused).count();
    for (std::size_t at = 0; at < found.size(); ++at) {
      if (at < most && found[at].used >= oldest) continue;
      const char* name = found[at].name.c_str();
      const sys::UniqueFd file(openat(opened.get(), name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
      if (file && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(opened.get(), name, 0);
    }
  } catch (const std::exception&) {
    // There is none yet.
  }
}

void mark_saved_machine_used(const std::string& path) noexcept {
  utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

}  // namespace casemate::microvm
