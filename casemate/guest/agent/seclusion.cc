#include "casemate/guest/agent/seclusion.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/seccomp.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Nothing is written to it; each socket that is bound has an inode for as long as it is known.
constexpr std::uint64_t kRootBytes = 64 * 1024;
constexpr std::uint64_t kRootInodes = 4096;

void enter_empty_root(std::uint32_t user, std::uint32_t group) {
  const UniqueFd root =
      sys::make_tmpfs({.size = kRootBytes, .inodes = kRootInodes, .mode = 0555}, {.no_exec = true});
  sys::make_directory_at(root.get(), "proc", 0555);
  sys::make_directory_at(root.get(), &kSeclusionSockets[1], 0700);
  if (fchownat(root.get(), &kSeclusionSockets[1], user, group, AT_SYMLINK_NOFOLLOW) < 0) {
    sys::throw_errno("giving the sockets' directory away");
  }
  // A mount is entered where it is attached; any directory will do that is always there.
  sys::attach(root.get(), AT_FDCWD, "/proc");
  sys::attach(sys::make_own_proc().get(), root.get(), "proc");
  sys::replace_root(root.get());
}

// The calls by number: glibc's wrappers are for processes with threads.
void become(std::uint32_t user, std::uint32_t group) {
  if (syscall(SYS_setgroups, 0, nullptr) < 0) sys::throw_errno("dropping groups");
  if (syscall(SYS_setresgid, group, group, group) < 0) sys::throw_errno("changing group");
  if (syscall(SYS_setresuid, user, user, user) < 0) sys::throw_errno("changing user");
}

void give_up_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const std::array<__user_cap_data_struct, 2> none{};
  if (syscall(SYS_capset, &header, none.data()) < 0) sys::throw_errno("giving up capabilities");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) sys::throw_errno("giving up capabilities");
}

}  // namespace

void seclude(std::uint32_t user, std::uint32_t group) {
  if (unshare(CLONE_NEWNET) < 0) sys::throw_errno("making a network namespace");
  enter_empty_root(user, group);
  empty_bounding_set();
  become(user, group);
  give_up_capabilities();
  sys::make_undumpable();
  const int error = install_seccomp_filter();
  if (error != 0) sys::throw_error(error, "installing the filter of system calls");
}

void keep_apart(int descriptor) {
  const pid_t pid = fork();
  if (pid < 0) sys::throw_errno("cloning a process");
  if (pid > 0) return;
  try {
    sys::close_all_except(std::array{descriptor});
  } catch (const std::exception&) {
    _exit(1);
  }
  while (true) pause();
}

}  // namespace casemate::guest
