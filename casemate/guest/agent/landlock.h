#pragma once

#include <unistd.h>

#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The second wall around a program's files: what mounts, ids and modes already refuse is refused
// once more, by rules that no mount undoes. Landlock of Linux 5.19 (ABI 2) or newer; older ones
// forbid each rename between directories.
//
// Files are only read and executed but below the work directory, /home/user, /tmp and /dev/shm;
// files of /dev and /proc are written too, never made or removed. With ABI 6 (Linux 6.12) a program
// reaches no abstract Unix socket and signals no process outside of its own exec.
//
// Does not bound what a descriptor that is already open can do, nor sockets.

// The oldest ABI that serves.
inline constexpr long kLeastLandlock = 2;

// The kernel's ABI; less than 1 where Landlock is not built in, not switched on or refused.
inline long landlock_version() noexcept {
  constexpr long kCreateRuleset = 444;
  constexpr unsigned kAskVersion = 1;
  return syscall(kCreateRuleset, nullptr, 0, kAskVersion);
}

// A rule set for the caller's mount namespace as it is now; none where the kernel has no Landlock
// that serves. Throws `std::system_error`.
sys::UniqueFd make_landlock(const std::string& work_dir);

// Puts the calling process under it for good; needs no_new_privs. Async-signal-safe. Returns 0 or
// an errno.
int enter_landlock(int rules) noexcept;

}  // namespace casemate::guest
