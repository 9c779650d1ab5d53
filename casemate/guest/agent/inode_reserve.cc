#include "casemate/guest/agent/inode_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

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
    mknodat(quota, path_of_reserved(number).c_str(), S_IFREG | 0600, 0);
  }
} catch (...) {
  // Out of memory: the next to look will.
}

bool give_up_reserved_inode(int quota) noexcept try {
  for (unsigned number = kReservedInodes; number > 0; --number) {
    if (unlinkat(quota, path_of_reserved(number - 1).c_str(), 0) == 0) return true;
  }
  return false;
} catch (...) {
  return false;
}

}  // namespace casemate::guest
