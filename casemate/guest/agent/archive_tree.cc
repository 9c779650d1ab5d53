// Reading: the first half of tree_archive.h.

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/archive_format.h"
#include "casemate/guest/agent/directory.h"
#include "casemate/guest/agent/tree_archive.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

class Archiver {
 public:
  Archiver(const std::string& directory, const PutBytes& put) : directory_(directory), put_(put) {}

  void run() {
    struct stat root{};
    if (lstat(directory_.c_str(), &root) < 0) fail("", errno);
    levels_.emplace_back();
    if (root.st_uid == geteuid() && (root.st_mode & kPassable) != kPassable) {
      if (chmod(directory_.c_str(), (root.st_mode & 07777) | kPassable) < 0) fail("", errno);
      count_remembered("");
      levels_.back().closed = root.st_mode & 07777;
    }
    current_ = open_at_path();
    Writer writer;
    add_attributes(writer, root);
    put_(writer.take());
    levels_.back().directories = put_what_is_no_directory();
    while (!levels_.empty()) {
      if (levels_.back().directories.empty()) {
        leave();
      } else {
        enter();
      }
    }
  }

  // After a failure: what was opened to be read.
  void close_again() noexcept try {
    for (; !levels_.empty(); levels_.pop_back(), path_.resize(parent_size())) {
      if (levels_.back().closed) fchmod(open_at_path().get(), *levels_.back().closed);
    }
  } catch (...) {
  }

 private:
  struct Level {
    // Still to be entered.
    std::vector<std::string> directories{};
    // What its mode is to be again.
    std::optional<unsigned> closed{};
  };

  [[noreturn]] void fail(const std::string& name, int error) const {
    throw OperationFailed{
        {FailureReason::errno_value, error, path_to(name).substr(0, kMaxFailureText)}};
  }

  std::size_t parent_size() const {
    const std::size_t slash = path_.rfind('/');
    return slash == std::string::npos ? 0 : slash;
  }

  std::string path_to(const std::string& name) const {
    return path_.empty() || name.empty() ? path_ + name : path_ + "/" + name;
  }

  // Anew from the top: one descriptor serves a tree of any depth, and ".." is never believed.
  UniqueFd open_at_path() const {
    return open_below(open_directory(directory_).get(), path_, O_RDONLY | O_DIRECTORY);
  }

  static void add_attributes(Writer& writer, const struct stat& status) {
    writer.u32(status.st_mode & kKeptModeBits)
        .u64(static_cast<std::uint64_t>(status.st_mtim.tv_sec))
        .u32(static_cast<std::uint32_t>(status.st_mtim.tv_nsec));
  }

  static Writer entry(ArchiveEntry type, const std::string& name) {
    Writer writer;
    writer.u8(static_cast<std::uint8_t>(type)).string(name);
    return writer;
  }

  void put_entry(ArchiveEntry type, const std::string& name, const struct stat& status) {
    Writer writer = entry(type, name);
    add_attributes(writer, status);
    put_(writer.take());
  }

  void enter() {
    Level& above = levels_.back();
    const std::string name = std::move(above.directories.back());
    above.directories.pop_back();
    struct stat status{};
    if (!look_at_what_may_go(name, status)) return;
    put_entry(ArchiveEntry::enter, name, status);
    if ((status.st_mode & kPassable) != kPassable) count_remembered(name);
    std::optional<unsigned> closed;
    UniqueFd opened = open_to_read(name, status, kPassable, O_DIRECTORY, closed);
    path_ = path_to(name);
    current_ = std::move(opened);
    levels_.emplace_back();
    levels_.back().closed = closed;
    if (path_.size() >= PATH_MAX) fail("", ENAMETOOLONG);
    levels_.back().directories = put_what_is_no_directory();
  }

  void leave() {
    const char type = static_cast<char>(ArchiveEntry::leave);
    put_({&type, 1});
    if (levels_.back().closed) fchmod(current_.get(), *levels_.back().closed);
    levels_.pop_back();
    if (levels_.empty()) return;
    path_.resize(parent_size());
    current_ = open_at_path();
  }

  void count_remembered(const std::string& name) {
    remembered_bytes_ += path_to(name).size() + kRememberedEntry;
    if (remembered_bytes_ > kMaxRememberedBytes) fail(name, E2BIG);
  }

  // False where it has gone: the directory of a call that has ended meanwhile. Nothing else goes by
  // itself.
  bool look_at_what_may_go(const std::string& name, struct stat& status) const {
    if (fstatat(current_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
    if (errno == ENOENT && levels_.size() == 1) return false;
    fail(name, errno);
  }

  // What its owner closed to itself is opened; `closed` then has the mode to be given back.
  UniqueFd open_to_read(const std::string& name, const struct stat& status, unsigned needed,
                        int flags, std::optional<unsigned>& closed) {
    constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    if ((status.st_mode & needed) != needed) {
      if (fchmodat(current_.get(), name.c_str(), (status.st_mode & 07777) | needed, 0) < 0) {
        fail(name, errno);
      }
      closed = status.st_mode & 07777;
    }
    UniqueFd opened(openat(current_.get(), name.c_str(), kFlags | flags));
    if (!opened) fail(name, errno);
    return opened;
  }

  // Of the directory that is current; returns the names of its directories.
  std::vector<std::string> put_what_is_no_directory() {
    std::vector<std::string> names;
    try {
      names = sys::list_directory_at(current_.get(), ".");
    } catch (const std::system_error& error) {
      fail("", error.code().value());
    }
    // In an order that is the same each time; taken from the end.
    std::sort(names.begin(), names.end(), std::greater<>());
    std::erase_if(names, [&](const std::string& name) {
      struct stat status{};
      if (!look_at_what_may_go(name, status)) return true;
      if (S_ISDIR(status.st_mode)) return levels_.size() == 1 && is_of_a_call(name, status);
      put_leaf(name, status);
      return true;
    });
    return names;
  }

  bool is_of_a_call(const std::string& name, const struct stat& status) const {
    struct statx more{};
    if (status.st_uid != geteuid()) return true;
    if (statx(current_.get(), name.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &more) < 0) {
      if (errno == ENOENT) return true;
      fail(name, errno);
    }
    return (more.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  }

  void put_leaf(const std::string& name, const struct stat& status) {
    if (status.st_uid != geteuid()) fail(name, EPERM);
    if (S_ISREG(status.st_mode)) return put_file(name, status);
    if (S_ISLNK(status.st_mode)) return put_link(name, status);
    if (S_ISFIFO(status.st_mode)) return put_entry(ArchiveEntry::fifo, name, status);
    if (!S_ISSOCK(status.st_mode)) fail(name, EINVAL);
  }

  void put_link(const std::string& name, const struct stat& status) {
    char target[PATH_MAX];
    const ssize_t length = readlinkat(current_.get(), name.c_str(), target, sizeof target);
    if (length < 0) fail(name, errno);
    Writer writer = entry(ArchiveEntry::symlink, name);
    add_attributes(writer, status);
    put_(writer.string({target, static_cast<std::size_t>(length)}).take());
  }

  void put_file(const std::string& name, const struct stat& seen) {
    if (seen.st_nlink > 1) {
      const auto [at, fresh] = others_.try_emplace(seen.st_ino, others_.size());
      if (!fresh) {
        put_(entry(ArchiveEntry::other_name, name).u32(at->second).take());
        return;
      }
      count_remembered(name);
    }
    std::optional<unsigned> closed;
    const UniqueFd file = open_to_read(name, seen, 0400, 0, closed);
    if (closed) fchmod(file.get(), *closed);
    Writer writer = entry(ArchiveEntry::file, name);
    add_attributes(writer, seen);
    writer.u64(static_cast<std::uint64_t>(seen.st_size)).u8(seen.st_nlink > 1 ? 1 : 0);
    put_(writer.take());
    put_extents(name, file.get(), seen.st_size);
    put_(Writer().u64(0).u64(0).take());
  }

  void put_extents(const std::string& name, int file, off_t size) {
    for (off_t at = 0; at < size;) {
      const off_t data = lseek(file, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) return;  // a hole to the end
      if (data < 0) fail(name, errno);
      off_t hole = lseek(file, data, SEEK_HOLE);
      if (hole < 0) fail(name, errno);
      hole = std::min(hole, size);
      if (hole <= data) return;
      put_(Writer()
               .u64(static_cast<std::uint64_t>(data))
               .u64(static_cast<std::uint64_t>(hole - data))
               .take());
      put_data(name, file, data, hole);
      at = hole;
    }
  }

  void put_data(const std::string& name, int file, off_t at, off_t until) {
    std::string piece(kArchivePiece, '\0');
    while (at < until) {
      const auto wanted = std::min<off_t>(until - at, static_cast<off_t>(piece.size()));
      const ssize_t got = pread(file, piece.data(), static_cast<std::size_t>(wanted), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(name, errno);
      if (got == 0) fail(name, EAGAIN);  // somebody made it shorter meanwhile
      put_(std::string_view(piece).substr(0, static_cast<std::size_t>(got)));
      at += got;
    }
  }

  const std::string& directory_;
  const PutBytes& put_;
  UniqueFd current_;
  std::string path_;
  std::vector<Level> levels_;
  // Files that have other names, by their number.
  std::map<ino_t, std::uint32_t> others_;
  std::size_t remembered_bytes_ = 0;
};

}  // namespace

void archive_tree(const std::string& directory, const PutBytes& put) {
  Archiver archiver(directory, put);
  try {
    archiver.run();
  } catch (...) {
    archiver.close_again();
    throw;
  }
}

}  // namespace casemate::guest
