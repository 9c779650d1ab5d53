#include "casemate/sys/unique_fd.h"

#include <cerrno>

namespace casemate::sys {

void UniqueFd::reset(int fd) noexcept {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  const int saved = errno;
  close(old);
  errno = saved;
}

}  // namespace casemate::sys
