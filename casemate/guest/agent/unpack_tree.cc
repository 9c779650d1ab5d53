// Writing: the second half of tree_archive.h. The bytes are of a guest that may have been
// anybody's.

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
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

constexpr std::uint32_t kNanosecondsOfASecond = 1'000'000'000;

struct Attributes {
  unsigned mode = 0;
  timespec modified{};
};

class Unpacker {
 public:
  Unpacker(const std::string& directory, const GetBytes& get) : directory_(directory), get_(get) {}

  void run() {
    current_ = open_at_path();
    attributes_.push_back(get_attributes());
    while (true) {
      switch (static_cast<ArchiveEntry>(get_u8())) {
        case ArchiveEntry::enter:
          enter();
          break;
        case ArchiveEntry::leave:
          if (leave()) return;
          break;
        case ArchiveEntry::file:
          make_file();
          break;
        case ArchiveEntry::symlink:
          make_link();
          break;
        case ArchiveEntry::fifo:
          make_fifo();
          break;
        case ArchiveEntry::other_name:
          make_other_name();
          break;
        default:
          fail("", EBADMSG);
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& name, int error) const {
    throw OperationFailed{
        {FailureReason::errno_value, error, path_to(name).substr(0, kMaxFailureText)}};
  }

  std::string path_to(const std::string& name) const {
    return path_.empty() || name.empty() ? path_ + name : path_ + "/" + name;
  }

  UniqueFd open_at_path() const {
    return open_below(open_directory(directory_).get(), path_, O_RDONLY | O_DIRECTORY);
  }

  // -- Bytes
  // ---------------------------------------------------------------------------------------

  std::uint64_t get_number(std::size_t bytes) {
    char raw[8];
    get_({raw, bytes});
    std::uint64_t value = 0;
    for (std::size_t at = bytes; at > 0; --at) {
      value = value << 8 | static_cast<unsigned char>(raw[at - 1]);
    }
    return value;
  }
  std::uint8_t get_u8() { return static_cast<std::uint8_t>(get_number(1)); }
  std::uint32_t get_u32() { return static_cast<std::uint32_t>(get_number(4)); }
  std::uint64_t get_u64() { return get_number(8); }

  // Not empty, without a NUL.
  std::string get_string(std::size_t most) {
    const std::uint32_t size = get_u32();
    if (size == 0 || size > most) fail("", EBADMSG);
    std::string text(size, '\0');
    get_(text);
    if (text.find('\0') != std::string::npos) fail("", EBADMSG);
    return text;
  }

  // One component, whatever else it is.
  std::string get_name() {
    std::string name = get_string(kMaxName);
    if (name == "." || name == ".." || name.find('/') != std::string::npos) fail("", EBADMSG);
    if (path_to(name).size() >= PATH_MAX) fail(name, ENAMETOOLONG);
    return name;
  }

  Attributes get_attributes() {
    Attributes found;
    found.mode = get_u32();
    found.modified.tv_sec = static_cast<time_t>(get_u64());
    const std::uint32_t nanoseconds = get_u32();
    found.modified.tv_nsec = nanoseconds;
    if ((found.mode & ~kKeptModeBits) != 0 || nanoseconds >= kNanosecondsOfASecond) {
      fail("", EBADMSG);
    }
    return found;
  }

  // -- Entries
  // -------------------------------------------------------------------------------------

  void enter() {
    const std::string name = get_name();
    attributes_.push_back(get_attributes());
    if (mkdirat(current_.get(), name.c_str(), 0700) < 0) fail(name, errno);
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd opened(openat(current_.get(), name.c_str(), kFlags));
    if (!opened) fail(name, errno);
    path_ = path_to(name);
    current_ = std::move(opened);
  }

  // Whether the tree ends.
  bool leave() {
    const Attributes found = attributes_.back();
    attributes_.pop_back();
    struct stat status{};
    if (fstat(current_.get(), &status) < 0) fail("", errno);
    // The top may be another user's, for all to write in.
    if (status.st_uid == geteuid()) {
      Attributes now = found;
      if ((found.mode & kPassable) != kPassable) {
        // Other names of a file in it may still come: it is closed last.
        now.mode |= kPassable;
        closed_.push_back({path_, found.mode});
        count_remembered(path_);
      }
      apply(now, "", current_.get());
    }
    if (attributes_.empty()) {
      close_directories();
      return true;
    }
    const std::size_t slash = path_.rfind('/');
    path_.resize(slash == std::string::npos ? 0 : slash);
    current_ = open_at_path();
    return false;
  }

  // Inner ones were left, and so are closed, before what they are in.
  void close_directories() {
    for (const Closed& each : closed_) {
      path_ = each.path;
      if (fchmod(open_at_path().get(), each.mode) < 0) fail("", errno);
    }
  }

  void apply(const Attributes& found, const std::string& name, int file) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, found.modified};
    if (futimens(file, times) < 0 || fchmod(file, found.mode) < 0) fail(name, errno);
  }

  void apply_time(const Attributes& found, const std::string& name) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, found.modified};
    if (utimensat(current_.get(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) < 0) fail(name, errno);
  }

  void make_file() {
    const std::string name = get_name();
    const Attributes found = get_attributes();
    const std::uint64_t size = get_u64();
    const bool has_other_names = get_u8() != 0;
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const UniqueFd file(openat(current_.get(), name.c_str(), kFlags, 0600));
    if (!file) fail(name, errno);
    if (size > static_cast<std::uint64_t>(INT64_MAX)) fail(name, EBADMSG);
    if (ftruncate(file.get(), static_cast<off_t>(size)) < 0) fail(name, errno);
    while (true) {
      const std::uint64_t at = get_u64();
      const std::uint64_t bytes = get_u64();
      if (bytes == 0) break;
      if (at > size || bytes > size - at) fail(name, EBADMSG);
      copy_data(name, file.get(), static_cast<off_t>(at), bytes);
    }
    apply(found, name, file.get());
    if (has_other_names) remember(name);
  }

  void copy_data(const std::string& name, int file, off_t at, std::uint64_t bytes) {
    std::string piece;
    while (bytes > 0) {
      piece.resize(std::min<std::uint64_t>(bytes, kArchivePiece));
      get_(piece);
      bytes -= piece.size();
      try {
        sys::write_all_at(file, piece, static_cast<std::uint64_t>(at), "unpacking a file");
      } catch (const std::system_error& error) {
        fail(name, error.code().value());
      }
      at += static_cast<off_t>(piece.size());
    }
  }

  void make_link() {
    const std::string name = get_name();
    const Attributes found = get_attributes();
    const std::string target = get_string(PATH_MAX - 1);
    if (symlinkat(target.c_str(), current_.get(), name.c_str()) < 0) fail(name, errno);
    apply_time(found, name);
  }

  void make_fifo() {
    const std::string name = get_name();
    const Attributes found = get_attributes();
    // 0: whatever this process's umask is, the mode is as it was.
    if (mkfifoat(current_.get(), name.c_str(), 0) < 0 ||
        fchmodat(current_.get(), name.c_str(), found.mode, 0) < 0) {
      fail(name, errno);
    }
    apply_time(found, name);
  }

  void count_remembered(const std::string& path) {
    remembered_bytes_ += path.size() + kRememberedEntry;
    if (remembered_bytes_ > kMaxRememberedBytes) fail("", E2BIG);
  }

  void remember(const std::string& name) {
    remembered_.push_back({.directory = directory_, .path = path_to(name)});
    count_remembered(remembered_.back().path);
  }

  void make_other_name() {
    const std::string name = get_name();
    const std::uint32_t number = get_u32();
    if (number >= remembered_.size()) fail(name, EBADMSG);
    const ParentAndLeaf first = open_parent(remembered_[number], MissingParents::fail);
    if (linkat(first.parent.get(), first.leaf.c_str(), current_.get(), name.c_str(), 0) < 0) {
      fail(name, errno);
    }
  }

  struct Closed {
    std::string path;
    unsigned mode;
  };

  const std::string& directory_;
  const GetBytes& get_;
  UniqueFd current_;
  std::string path_;
  // Of the directories on the way down, the top first; given when each is left.
  std::vector<Attributes> attributes_;
  std::vector<FilePath> remembered_;
  // Directories that their owner closed to itself, the inner ones first.
  std::vector<Closed> closed_;
  std::size_t remembered_bytes_ = 0;
};

}  // namespace

void unpack_tree(const std::string& directory, const GetBytes& get) {
  Unpacker(directory, get).run();
}

}  // namespace casemate::guest
