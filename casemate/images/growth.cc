#include "casemate/images/growth.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <system_error>

#include "casemate/sys/file.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

constexpr int kMaxDepth = 3;

}  // namespace

Growth::Growth(int entry) : entry_(entry), events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  look();
}

std::uint64_t Growth::look() {
  // Each event says no more than that it is time to look: one that is lost, because too many came,
  // is one too.
  std::array<char, 4096> events;
  while (events_ && ::read(events_.get(), events.data(), events.size()) > 0) {
  }
  return count(entry_, 0);
}

std::uint64_t Growth::count(int entry, int depth) {
  struct stat status{};
  if (fstat(entry, &status) < 0) return 0;
  if (S_ISREG(status.st_mode)) {
    watch(entry, IN_MODIFY);
    return static_cast<std::uint64_t>(status.st_size);
  }
  // Before it is listed, so that what comes meanwhile is one or the other.
  watch(entry, IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
  std::uint64_t bytes = 0;
  try {
    for (const std::string& name : sys::list_directory_at(entry, ".")) {
      if (fstatat(entry, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
      if (S_ISREG(status.st_mode)) {
        bytes += static_cast<std::uint64_t>(status.st_size);
      } else if (S_ISDIR(status.st_mode) && depth < kMaxDepth) {
        const UniqueFd inner(
            openat(entry, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (inner) bytes += count(inner.get(), depth + 1);
      }
    }
  } catch (const std::system_error&) {
    // It was removed meanwhile: nothing in it is counted any more.
  }
  return bytes;
}

// The same again is no second watch.
void Growth::watch(int entry, std::uint32_t what) {
  if (!events_) return;
  inotify_add_watch(events_.get(), fmt::format("/proc/self/fd/{}", entry).c_str(), what);
}

}  // namespace casemate::images
