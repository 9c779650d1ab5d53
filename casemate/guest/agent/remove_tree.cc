#include "casemate/guest/agent/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
constexpr int kMaxRestarts = 16;

// One directory on the way down: which it is, and under which name its parent has it.
struct Level {
  dev_t device;
  ino_t inode;
  std::string name;
};

struct CloseDirectory {
  void operator()(DIR* stream) const { closedir(stream); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool is_dots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

// -1 with errno; ELOOP for a link. Not by O_DIRECTORY with O_NOFOLLOW alone: gVisor follows a link
// then.
int open_subdirectory(int directory, const char* name) {
  const sys::UniqueFd found(openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!found || fstat(found.get(), &status) != 0) return -1;
  if (!S_ISDIR(status.st_mode)) {
    errno = S_ISLNK(status.st_mode) ? ELOOP : ENOTDIR;
    return -1;
  }
  return openat(found.get(), ".", kDirectoryFlags);
}

// A second open file description of the same directory, so that its offset is its own.
Directory read_from_start(int directory) {
  sys::UniqueFd copy(openat(directory, ".", kDirectoryFlags));
  if (!copy) return nullptr;
  Directory stream(fdopendir(copy.get()));
  if (stream) static_cast<void>(copy.release());
  return stream;
}

// Unlinks every entry that is no directory or an empty one. Returns 0 when nothing is left,
// ENOTEMPTY with `child` set to a directory to descend into, or the errno that stopped it: EAGAIN
// once there is an entry and `left` is 0.
int empty_flat_part(int directory, std::string& child, std::uint64_t& left) {
  const Directory stream = read_from_start(directory);
  if (!stream) return errno;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) return errno;
    if (is_dots(entry->d_name)) continue;
    if (left == 0) return EAGAIN;
    --left;
    if (entry->d_type != DT_DIR) {
      if (unlinkat(directory, entry->d_name, 0) == 0 || errno == ENOENT) continue;
      // EISDIR (Linux) or EPERM (POSIX): it became a directory, or the type was not told.
      if (errno != EISDIR && errno != EPERM) return errno;
    }
    if (unlinkat(directory, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
    if (errno == ENOTDIR) {
      if (unlinkat(directory, entry->d_name, 0) == 0 || errno == ENOENT) continue;
      return errno;
    }
    if (errno != ENOTEMPTY && errno != EEXIST) return errno;
    child = entry->d_name;
    return ENOTEMPTY;
  }
}

enum class Pass { done, moved, failed };

struct Outcome {
  Pass pass;
  int error = 0;
};

Outcome one_pass(int top, const std::string& name, std::uint64_t& left) {
  if (unlinkat(top, name.c_str(), 0) == 0 || errno == ENOENT) return {Pass::done};
  const int refused = errno;
  if (refused != EISDIR && refused != EPERM) return {Pass::failed, refused};
  if (unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {Pass::done};
  if (errno == ENOTDIR) return {refused == EPERM ? Pass::failed : Pass::moved, refused};
  if (errno != ENOTEMPTY && errno != EEXIST) return {Pass::failed, errno};

  std::vector<Level> above;  // the directories over `current`, the top first
  sys::UniqueFd current(openat(top, ".", kDirectoryFlags));
  if (!current) return {Pass::failed, errno};
  std::string child = name;
  while (true) {
    // Down into `child`.
    struct stat here{};
    if (fstat(current.get(), &here) != 0) return {Pass::failed, errno};
    sys::UniqueFd below(open_subdirectory(current.get(), child.c_str()));
    if (!below) {
      const bool changed = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
      return {changed ? Pass::moved : Pass::failed, errno};
    }
    above.push_back({here.st_dev, here.st_ino, child});
    current = std::move(below);

    // Empty it; climb while that succeeds.
    while (true) {
      const int error = empty_flat_part(current.get(), child, left);
      if (error == ENOTEMPTY) break;
      if (error != 0) return {Pass::failed, error};
      const Level level = std::move(above.back());
      above.pop_back();
      sys::UniqueFd parent(above.empty() ? openat(top, ".", kDirectoryFlags)
                                         : openat(current.get(), "..", kDirectoryFlags));
      struct stat seen{};
      if (!parent || fstat(parent.get(), &seen) != 0) return {Pass::failed, errno};
      if (seen.st_dev != level.device || seen.st_ino != level.inode) return {Pass::moved};
      if (unlinkat(parent.get(), level.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
        const bool changed = errno == ENOTDIR || errno == ENOTEMPTY || errno == EEXIST;
        return {changed ? Pass::moved : Pass::failed, errno};
      }
      if (above.empty()) return {Pass::done};
      current = std::move(parent);
    }
  }
}

}  // namespace

int remove_tree(int directory, const std::string& name, std::uint64_t most) noexcept try {
  std::uint64_t left = most;
  for (int restart = 0; restart <= kMaxRestarts; ++restart) {
    const Outcome outcome = one_pass(directory, name, left);
    if (outcome.pass == Pass::done) return 0;
    if (outcome.pass == Pass::failed) return outcome.error;
  }
  return EAGAIN;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

}  // namespace casemate::guest
