#include "casemate/sys/staged_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::sys {
namespace {

constexpr mode_t kFileMode = 0666;
constexpr mode_t kDirectoryMode = 0777;
// A random name is taken once in 2^64; more tries than a few mean that something else is wrong.
constexpr int kNameTries = 8;

constexpr std::string_view kTemporaryPrefix = ".casemate-";
constexpr std::size_t kTemporaryDigits = 16;

bool is_temporary_name(std::string_view name) {
  return name.size() == kTemporaryPrefix.size() + kTemporaryDigits &&
         name.starts_with(kTemporaryPrefix) &&
         name.find_first_not_of("0123456789abcdef", kTemporaryPrefix.size()) ==
             std::string_view::npos;
}

void remove_abandoned(int directory) {
  // As many as any batch leaves; the rest is for the next time.
  constexpr std::size_t kMostEntries = 100'000;
  UniqueFd listed(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listed) {
    return;
  }
  for (const DirectoryEntry& entry : read_directory(std::move(listed), kMostEntries)) {
    if (!is_temporary_name(entry.name) || (entry.type != DT_REG && entry.type != DT_LNK)) {
      continue;
    }
    const auto found = entry_in(directory, entry.name);
    if (found && found->st_uid == geteuid()) {
      unlinkat(directory, entry.name.c_str(), 0);
    }
  }
}

std::string temporary_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
    throw_errno("getrandom");
  }
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), ".casemate-%016llx",
                      static_cast<unsigned long long>(number));
  return text.data();
}

bool lacks_support(int error) { return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP; }

std::shared_ptr<const UniqueFd> open_again(int directory) {
  UniqueFd opened(openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!opened) {
    throw_errno("open a directory");
  }
  return std::make_shared<const UniqueFd>(std::move(opened));
}

// Links the unnamed file behind `fd`. -1 with errno.
int link_unnamed(int fd, int directory, const std::string& name) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (linkat(AT_FDCWD, path.c_str(), directory, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return 0;
  }
  if (errno != ENOENT) {
    return -1;
  }
  // No /proc here. Needs a capability before Linux 6.10, hence second.
  return linkat(fd, "", directory, name.c_str(), AT_EMPTY_PATH);
}

}  // namespace

StagedFile::StagedFile(std::shared_ptr<const UniqueFd> directory, Staging staging)
    : directory_(std::move(directory)) {
  const int at = directory_->get();
  if (staging == Staging::unnamed) {
    file_.reset(openat(at, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, kFileMode));
    // EISDIR and ENOENT are what kernels and file systems without O_TMPFILE make of its flags; a
    // directory that is really gone fails below again.
    if (!file_ && !lacks_support(errno) && errno != EISDIR && errno != ENOENT) {
      throw_errno("create a file");
    }
  }
  for (int i = 0; !file_; ++i) {
    std::string name = temporary_name();
    file_.reset(
        openat(at, name.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, kFileMode));
    if (file_) {
      temporary_ = std::move(name);
    } else if (errno != EEXIST || i == kNameTries) {
      throw_errno("create a file");
    }
  }
}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      file_(std::move(other.file_)),
      identity_(other.identity_),
      temporary_(std::exchange(other.temporary_, {})),
      published_(std::exchange(other.published_, {})),
      holds_replaced_(std::exchange(other.holds_replaced_, false)),
      owner_(other.owner_) {}

StagedFile::~StagedFile() {
  if (owner_.is_current()) {
    undo();
  }
}

void StagedFile::write(std::span<const char> bytes) {
  write_all(file_.get(), bytes, "write a file");
}

void StagedFile::set_mode(mode_t mode) {
  if (fchmod(file_.get(), mode) != 0) {
    throw_errno("set a file's mode");
  }
}

void StagedFile::sync() {
  if (fsync(file_.get()) != 0) {
    throw_errno("sync a file");
  }
  identity_ = status_of(file_.get());
  if (temporary_.empty()) {
    return;  // its descriptor is all there is of it
  }
  // Network file systems report some failed writes only here.
  if (close(file_.release()) != 0 && errno != EINTR) {
    throw_errno("close a file");
  }
}

void StagedFile::publish(const std::string& name) {
  const int at = directory_->get();
  if (temporary_.empty()) {
    if (link_unnamed(file_.get(), at, name) != 0) {
      throw_errno("link a file");
    }
  } else if (renameat2(at, temporary_.c_str(), at, name.c_str(), RENAME_NOREPLACE) == 0) {
    temporary_.clear();
  } else {
    if (!lacks_support(errno)) {
      throw_errno("rename a file");
    }
    if (linkat(at, temporary_.c_str(), at, name.c_str(), 0) != 0) {
      throw_errno("link a file");
    }
    unlinkat(at, temporary_.c_str(), 0);
    temporary_.clear();
  }
  published_ = name;
}

void StagedFile::replace(const std::string& name) {
  for (int i = 0; i < kNameTries; ++i) {
    try {
      publish(name);
      return;
    } catch (const std::system_error& error) {
      if (error.code().value() != EEXIST) {
        throw;
      }
    }
    name_temporarily();
    const int at = directory_->get();
    if (renameat2(at, temporary_.c_str(), at, name.c_str(), RENAME_EXCHANGE) == 0) {
      published_ = name;
      holds_replaced_ = true;
      const auto replaced = entry_in(at, temporary_);
      if (replaced && S_ISDIR(replaced->st_mode)) {
        throw_error(EISDIR, "replace a file");  // the destructor exchanges them back
      }
      return;
    }
    if (lacks_support(errno)) {
      if (renameat(at, temporary_.c_str(), at, name.c_str()) != 0) {
        throw_errno("replace a file");
      }
      temporary_.clear();
      published_ = name;
      return;
    }
    if (errno != ENOENT) {
      throw_errno("replace a file");
    }
    // Removed between the two calls: publishing may work now.
  }
  throw_error(EBUSY, "replace a file");
}

void StagedFile::keep() noexcept {
  if (holds_replaced_) {
    unlinkat(directory_->get(), temporary_.c_str(), 0);
  }
  holds_replaced_ = false;
  temporary_.clear();
  published_.clear();
}

void StagedFile::name_temporarily() {
  for (int i = 0; temporary_.empty(); ++i) {
    std::string name = temporary_name();
    if (link_unnamed(file_.get(), directory_->get(), name) == 0) {
      temporary_ = std::move(name);
    } else if (errno != EEXIST || i == kNameTries) {
      throw_errno("link a file");
    }
  }
}

bool StagedFile::published_is_ours() const noexcept {
  struct stat found{};
  if (fstatat(directory_->get(), published_.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
    return false;
  }
  // The number of a removed file is soon another's where no descriptor holds it (`named`), hence
  // the last write too.
  return found.st_dev == identity_.st_dev && found.st_ino == identity_.st_ino &&
         found.st_size == identity_.st_size && found.st_mtim.tv_sec == identity_.st_mtim.tv_sec &&
         found.st_mtim.tv_nsec == identity_.st_mtim.tv_nsec;
}

void StagedFile::undo() noexcept {
  if (!directory_) {
    return;  // moved from
  }
  const int at = directory_->get();
  // What somebody else put under the name since is theirs.
  const bool ours = !published_.empty() && published_is_ours();
  if (ours && holds_replaced_) {
    if (renameat2(at, temporary_.c_str(), at, published_.c_str(), RENAME_EXCHANGE) != 0) {
      return;  // better a stray name than the loss of what was there
    }
  } else if (ours) {
    unlinkat(at, published_.c_str(), 0);
  }
  if (!temporary_.empty()) {
    unlinkat(at, temporary_.c_str(), 0);
  }
}

UniqueFd claim_staging(int directory) noexcept try {
  UniqueFd claim(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!claim) {
    return {};
  }
  if (flock(claim.get(), LOCK_EX | LOCK_NB) == 0) {
    remove_abandoned(directory);
  }
  // Whoever removes is done in a moment; whoever locks directories for other reasons may not be.
  constexpr int kTries = 1000;
  constexpr timespec kPause{0, 1'000'000};
  for (int i = 0; i < kTries; ++i) {
    if (flock(claim.get(), LOCK_SH | LOCK_NB) == 0) {
      return claim;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return {};
    }
    nanosleep(&kPause, nullptr);
  }
  return {};
} catch (const std::exception&) {
  return {};  // what was left stays, and is tried again the next time
}

bool write_whole_file(int directory, const std::string& name, mode_t mode,
                      const std::function<void(int file)>& fill) {
  const UniqueFd claim = claim_staging(directory);
  StagedFile file(open_again(directory));
  fill(file.get());
  file.set_mode(mode);
  file.sync();
  try {
    file.publish(name);
  } catch (const std::system_error& error) {
    if (error.code().value() != EEXIST) {
      throw;
    }
    return false;
  }
  sync_directory(directory);
  file.keep();
  return true;
}

void replace_whole_file(int directory, const std::string& name, std::string_view bytes) {
  const UniqueFd claim = claim_staging(directory);
  StagedFile file(open_again(directory));
  file.write({bytes.data(), bytes.size()});
  file.sync();
  file.replace(name);
  file.keep();
}

void sync_directory(int directory) {
  const UniqueFd opened(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) {
    if (errno == EACCES) {
      return;
    }
    throw_errno("open a directory");
  }
  if (fsync(opened.get()) != 0 && !lacks_support(errno)) {
    throw_errno("sync a directory");
  }
}

void rename_directory(int from, const std::string& name, int to, const std::string& free) {
  if (renameat2(from, name.c_str(), to, free.c_str(), RENAME_NOREPLACE) == 0) return;
  if (!lacks_support(errno) || renameat(from, name.c_str(), to, free.c_str()) < 0) {
    throw_errno("rename a directory");
  }
}

bool make_directory(int directory, const std::string& name) {
  if (mkdirat(directory, name.c_str(), kDirectoryMode) == 0) {
    return true;
  }
  if (errno == EEXIST) {
    return false;
  }
  throw_errno("make a directory");
}

void remove_empty_directory(int directory, const std::string& name) noexcept {
  unlinkat(directory, name.c_str(), AT_REMOVEDIR);
}

}  // namespace casemate::sys
