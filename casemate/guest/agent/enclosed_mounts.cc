#include "casemate/guest/agent/enclosed_mounts.h"

#include <fcntl.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "casemate/guest/agent/remove_tree.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr std::array<std::string_view, 13> kDevices = {
    "fd",  "full",  "null",   "ptmx",   "pts",  "random", "shm",
    "tty", "stdin", "stdout", "stderr", "zero", "urandom"};

void mount_at(const char* type, const char* path, unsigned long flags, const std::string& options) {
  if (mount(type, path, type, flags, options.c_str()) < 0) {
    sys::throw_errno(std::string("mounting ") + path);
  }
}

void make_private() {
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
    sys::throw_errno("making mounts private");
  }
}

}  // namespace

void mount_call_directories(std::uint64_t bytes) {
  make_private();
  const std::string options = "mode=1777,size=" + std::to_string(bytes);
  mount_at("tmpfs", "/tmp", MS_NOSUID | MS_NODEV, options);
  mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV | MS_NOEXEC, options);
}

void mount_own_processes() {
  make_private();
  mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "");
  mount_at("tmpfs", "/proc/1", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=555,size=4096");
}

void remove_devices() {
  const sys::UniqueFd devices = sys::open_at(AT_FDCWD, "/dev", O_PATH | O_DIRECTORY);
  for (const std::string& name : sys::list_directory_at(devices.get(), ".")) {
    if (std::ranges::find(kDevices, name) != kDevices.end()) continue;
    // What an engine mounted there, as queues that all calls would share.
    umount2(("/dev/" + name).c_str(), MNT_DETACH);
    if (const int error = remove_tree(devices.get(), name)) {
      sys::throw_error(error, "removing the device " + name);
    }
  }
}

}  // namespace casemate::guest
