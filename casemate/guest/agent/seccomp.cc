#include "casemate/guest/agent/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace casemate::guest {

int install_seccomp_filter() noexcept {
  const sock_fprog program{
      .len = static_cast<unsigned short>(kSeccompProgramBytes / sizeof(sock_filter)),
      // The kernel's type is not const; it only reads.
      .filter = reinterpret_cast<sock_filter*>(const_cast<unsigned char*>(kSeccompProgram))};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : errno;
}

}  // namespace casemate::guest
