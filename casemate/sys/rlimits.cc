#include "casemate/sys/rlimits.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <string>

#include "casemate/sys/file.h"

namespace casemate::sys {
namespace {

// The inode of the first user namespace: PROC_USER_INIT_INO, the same since Linux 3.8.
constexpr ino_t kFirstUserNamespace = 0xEFFFFFFD;

// The kernel asks for the right in the first user namespace, whatever a container's root has.
bool may_raise_limits() noexcept {
  struct stat status{};
  if (stat("/proc/self/ns/user", &status) < 0 || status.st_ino != kFirstUserNamespace) return false;
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[2]{};
  if (syscall(SYS_capget, &header, sets) < 0) return false;
  return (sets[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective & CAP_TO_MASK(CAP_SYS_RESOURCE)) != 0;
}

}  // namespace

std::uint64_t most_of(int resource) noexcept {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) < 0) return 0;
  if (!may_raise_limits()) return limit.rlim_max;
  if (resource != RLIMIT_NOFILE) return RLIM_INFINITY;
  std::uint64_t ceiling = 0;
  try {
    const std::string text = read_file_at(AT_FDCWD, "/proc/sys/fs/nr_open", 64);
    std::from_chars(text.data(), text.data() + text.size(), ceiling);
  } catch (const std::exception&) {
  }
  return std::max<std::uint64_t>(limit.rlim_max, ceiling);
}

void set_limit_as_near(int resource, std::uint64_t soft, std::uint64_t hard) noexcept {
  const auto number = static_cast<__rlimit_resource_t>(resource);
  const rlimit wanted{.rlim_cur = soft, .rlim_max = hard};
  if (setrlimit(number, &wanted) == 0) return;
  rlimit limit{};
  if (getrlimit(number, &limit) < 0) return;
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, hard);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, soft);
  setrlimit(number, &limit);
}

}  // namespace casemate::sys
