#include "casemate/guest/agent/inode_reserve.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr char kDirectory[] = "reserve";

std::string path_of_reserved(unsigned number) {
  return std::string(kDirectory) + "/" + std::to_string(number);
}

}  // namespace

// The last is given up first: while it is there, nothing is missing.
void fill_inode_reserve(int quota) noexcept try {
  struct stat last{};
  const std::string name = path_of_reserved(kReservedInodes - 1);
  if (fstatat(quota, name.c_str(), &last, AT_SYMLINK_NOFOLLOW) == 0) return;
  mkdirat(quota, kDirectory, 0700);
  for (unsigned number = 0; number < kReservedInodes; ++number) {
    mkdirat(quota, path_of_reserved(number).c_str(), 0700);
  }
} catch (...) {
  // Out of memory: the next to look will.
}

bool use_reserved_inode(int quota, const std::string& path, unsigned mode) noexcept try {
  for (unsigned number = kReservedInodes; number > 0; --number) {
    const std::string name = path_of_reserved(number - 1);
    if (renameat2(quota, name.c_str(), quota, path.c_str(), RENAME_NOREPLACE) < 0) {
      if (errno == ENOENT) continue;
      return false;
    }
    // Where programs own the directory around it, it may be another thing by now.
    const sys::UniqueFd directory(
        openat(quota, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    return directory && fchmod(directory.get(), mode) == 0;
  }
  errno = ENOSPC;
  return false;
} catch (...) {
  errno = ENOMEM;
  return false;
}

}  // namespace casemate::guest
