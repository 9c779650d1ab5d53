#include "bench/own_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::bench {
namespace {

constexpr char kParent[] = "/tmp";
constexpr std::string_view kPrefix = "casemate-bench-";
constexpr char kLockName[] = "owner.lock";

void remove_if_left(const std::filesystem::path& path,
                    const std::function<void(const std::filesystem::path&)>& before) {
  const sys::UniqueFd directory(open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!directory || fstat(directory.get(), &status) < 0 || status.st_uid != geteuid()) return;
  // Without a lock it is being made in this moment.
  const sys::UniqueFd lock(
      openat(directory.get(), kLockName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) < 0) return;
  try {
    before(path);
  } catch (const std::exception&) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

OwnDirectory::OwnDirectory() {
  std::string name = std::string(kParent) + "/" + std::string(kPrefix) + "XXXXXX";
  if (mkdtemp(name.data()) == nullptr) sys::throw_errno("making a directory under /tmp");
  path_ = name;
  // Locked before a sweep can see it.
  const std::filesystem::path unseen = path_ / "next.lock";
  lock_ = sys::open_at(AT_FDCWD, unseen.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) < 0) sys::throw_errno("locking " + name);
  std::filesystem::rename(unseen, path_ / kLockName);
}

OwnDirectory::~OwnDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void sweep_own_directories(
    const std::function<void(const std::filesystem::path& directory)>& before) noexcept {
  try {
    for (const auto& entry : std::filesystem::directory_iterator(kParent)) {
      if (entry.path().filename().string().starts_with(kPrefix)) {
        remove_if_left(entry.path(), before);
      }
    }
  } catch (const std::exception&) {
    // What is left is looked at again the next time.
  }
}

}  // namespace casemate::bench
