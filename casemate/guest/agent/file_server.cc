#include "casemate/guest/agent/file_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/directory.h"
#include "casemate/guest/agent/guest_io.h"
#include "casemate/guest/agent/remove_tree.h"
#include "casemate/guest/agent/tree_archive.h"
#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

// The host is gone or broke the protocol: the connection ends.
struct ConnectionOver {};

WireKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return WireKind::file;
  if (S_ISDIR(mode)) return WireKind::directory;
  if (S_ISLNK(mode)) return WireKind::symlink;
  return WireKind::other;
}

WireEntry entry_of(std::string name, const struct stat& status) {
  const WireKind kind = kind_of(status.st_mode);
  const bool is_file = kind == WireKind::file;
  return {std::move(name), kind, is_file ? static_cast<std::uint64_t>(status.st_size) : 0};
}

// Seconds on tmpfs. A sandbox has 65,536 if it was not given more (`Resources::disk_inodes`).
constexpr std::uint64_t kMostRemoved = 8'000'000;

struct CloseDirectory {
  void operator()(DIR* stream) const { closedir(stream); }
};

// A file being written. Unless `keep` is called, one that did not exist before is gone again.
class Destination {
 public:
  explicit Destination(const FilePath& file) {
    if (file.path.empty()) refuse_path();
    at_ = open_parent(file, MissingParents::create);
    const char* leaf = at_.leaf.c_str();
    struct stat status{};
    if (fstatat(at_.parent.get(), leaf, &status, AT_SYMLINK_NOFOLLOW) == 0) {
      if (S_ISLNK(status.st_mode)) refuse_path();
      if (S_ISDIR(status.st_mode)) fail_with(EISDIR);
    }
    // O_NONBLOCK: a FIFO without a reader must not hold us.
    constexpr int kFlags = O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    fd_.reset(openat(at_.parent.get(), leaf, kFlags | O_CREAT | O_EXCL, 0666));
    created_ = static_cast<bool>(fd_);
    if (!fd_ && errno == EEXIST) fd_.reset(openat(at_.parent.get(), leaf, kFlags));
    if (!fd_) {
      if (errno == ELOOP) refuse_path();
      fail_with(errno == ENXIO ? EINVAL : errno);
    }
    if (fstat(fd_.get(), &status) != 0) fail_with(errno);
    if (!S_ISREG(status.st_mode)) fail_with(EINVAL);
    if (ftruncate(fd_.get(), 0) != 0) fail_with(errno);
  }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;
  ~Destination() {
    if (created_ && !kept_) unlinkat(at_.parent.get(), at_.leaf.c_str(), 0);
  }

  void write(std::string_view bytes) try {
    sys::write_all(fd_.get(), bytes, "writing a file");
  } catch (const std::system_error& error) {
    fail_with(error.code().value());
  }
  void keep() { kept_ = true; }

 private:
  ParentAndLeaf at_;
  sys::UniqueFd fd_;
  bool created_ = false;
  bool kept_ = false;
};

class FileServer {
 public:
  FileServer(int connection, std::vector<std::string> kept_directories)
      : connection_(connection),
        kept_directories_(std::move(kept_directories)),
        reader_(connection),
        writer_(connection) {}

  void refuse_all(int error_number) {
    put(FrameType::failed, encode(Failure{FailureReason::no_resources, error_number, {}}));
    await_flush(connection_, writer_);
  }

  // Returns when the host closed; throws `ConnectionOver` or `ProtocolError`.
  void serve() {
    while (const std::optional<Frame> frame = await_frame(connection_, reader_)) {
      try {
        answer(*frame);
      } catch (const OperationFailed& failed) {
        put(FrameType::failed, encode(failed.failure));
      } catch (const std::bad_alloc&) {
        put(FrameType::failed, encode(Failure{FailureReason::no_resources, ENOMEM, {}}));
      }
      flush();
    }
  }

 private:
  void put(FrameType type, std::string_view payload = {}) try {
    writer_.send(wire(type), payload);
  } catch (const std::system_error&) {
    throw ConnectionOver{};
  }
  void flush(std::size_t most_pending = 0) {
    if (!await_flush(connection_, writer_, most_pending)) throw ConnectionOver{};
  }

  void answer(const Frame& frame) {
    switch (static_cast<FrameType>(frame.type)) {
      case FrameType::write_file:
        return write(decode_write_file(frame.payload));
      case FrameType::stat_file:
        return stat(decode_file_path(frame.payload));
      case FrameType::read_file:
        return read(decode_read_file(frame.payload));
      case FrameType::remove_file:
        return remove(decode_remove_file(frame.payload));
      case FrameType::list_directory:
        return list(decode_file_path(frame.payload));
      case FrameType::archive:
        expect_empty(frame);
        return archive();
      case FrameType::unpack:
        expect_empty(frame);
        return unpack();
      default:
        throw ProtocolError("no request of a files connection");
    }
  }

  // Takes all the announced data in any case, so that the answer always stands after `end`.
  void write(const WriteFile& request) {
    std::unique_ptr<Destination> destination;
    std::optional<Failure> failure;
    const auto attempt = [&](auto act) {
      if (failure) return;
      try {
        act();
      } catch (const OperationFailed& failed) {
        failure = failed.failure;
      }
    };
    attempt([&] { destination = std::make_unique<Destination>(request.file); });
    std::uint64_t left = request.size;
    while (true) {
      std::optional<Frame> frame = await_frame(connection_, reader_);
      if (!frame) throw ConnectionOver{};
      if (is(*frame, FrameType::end)) break;
      if (!is(*frame, FrameType::data)) throw ProtocolError("no data where a file is written");
      expect_data(*frame);
      if (frame->payload.size() > left) throw ProtocolError("more data than was announced");
      left -= frame->payload.size();
      attempt([&] { destination->write(frame->payload); });
      reader_.reuse(std::move(frame->payload));
    }
    if (left != 0) throw ProtocolError("less data than was announced");
    if (failure) throw OperationFailed{*failure};
    destination->keep();
    put(FrameType::done);
  }

  void stat(const FilePath& file) { put(FrameType::entry, encode(look_up(file))); }

  static std::optional<WireEntry> look_up(const FilePath& file) try {
    struct stat status{};
    if (file.path.empty()) {
      const sys::UniqueFd directory = open_directory(file.directory);
      if (fstat(directory.get(), &status) != 0) fail_with(errno);
    } else {
      const ParentAndLeaf at = open_parent(file, MissingParents::fail);
      if (fstatat(at.parent.get(), at.leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
        fail_with(errno);
      }
    }
    return entry_of({}, status);
  } catch (const OperationFailed& failed) {
    const Failure& failure = failed.failure;
    if (failure.reason == FailureReason::errno_value && failure.error == ENOENT) {
      return std::nullopt;
    }
    throw;
  }

  // The size that is judged and the bytes that are sent come from one descriptor.
  void read(const ReadFile& request) {
    const sys::UniqueFd file = open_to_read(request.file);
    struct stat status{};
    if (fstat(file.get(), &status) != 0) fail_with(errno);
    if (S_ISDIR(status.st_mode)) fail_with(EISDIR);
    if (!S_ISREG(status.st_mode)) fail_with(EINVAL);
    if (static_cast<std::uint64_t>(status.st_size) > request.max_bytes) over_cap();

    std::string buffer(kMaxData, '\0');
    std::uint64_t left = request.max_bytes;
    while (true) {
      const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_with(errno);
      if (got == 0) break;
      const auto size = static_cast<std::size_t>(got);
      if (size > left) over_cap();  // it grew since
      left -= size;
      put(FrameType::data, std::string_view(buffer).substr(0, size));
      flush(kMaxData);
    }
    put(FrameType::end);
  }

  static sys::UniqueFd open_to_read(const FilePath& file) {
    if (file.path.empty()) {
      open_directory(file.directory);
      fail_with(EISDIR);
    }
    const ParentAndLeaf at = open_parent(file, MissingParents::fail);
    constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    sys::UniqueFd opened(openat(at.parent.get(), at.leaf.c_str(), kFlags));
    // ENXIO: a socket, or a device without a driver. A link as the last component stays ELOOP.
    if (!opened) fail_with(errno == ENXIO ? EINVAL : errno);
    return opened;
  }

  [[noreturn]] static void over_cap() { throw OperationFailed{{FailureReason::over_cap, 0, {}}}; }

  void remove(const RemoveFile& request) {
    if (request.file.path.empty()) refuse_path();
    try {
      const ParentAndLeaf at = open_parent(request.file, MissingParents::fail);
      remove_at(at, request.recursive);
    } catch (const OperationFailed& failed) {
      const Failure& failure = failed.failure;
      const bool missing = failure.reason == FailureReason::errno_value && failure.error == ENOENT;
      if (!missing) throw;
    }
    put(FrameType::done);
  }

  static void remove_at(const ParentAndLeaf& at, bool recursive) {
    struct stat status{};
    if (fstatat(at.parent.get(), at.leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      fail_with(errno);
    }
    if (!S_ISDIR(status.st_mode)) {
      if (unlinkat(at.parent.get(), at.leaf.c_str(), 0) != 0) fail_with(errno);
      return;
    }
    if (!recursive) fail_with(EISDIR);
    const int error = remove_tree(at.parent.get(), at.leaf, kMostRemoved);
    if (error != 0) fail_with(error);
  }

  void list(const FilePath& file) {
    sys::UniqueFd directory =
        open_below(open_directory(file.directory).get(), file.path, O_RDONLY | O_DIRECTORY);
    const std::unique_ptr<DIR, CloseDirectory> stream(fdopendir(directory.get()));
    if (!stream) fail_with(errno);
    const int fd = directory.release();

    Writer piece;
    std::uint32_t count = 0;
    std::uint32_t vanished = 0;
    while (true) {
      errno = 0;
      const dirent* found = readdir(stream.get());
      if (found == nullptr && errno != 0) fail_with(errno);
      if (found == nullptr) break;
      if (std::strcmp(found->d_name, ".") == 0 || std::strcmp(found->d_name, "..") == 0) continue;
      struct stat status{};
      if (fstatat(fd, found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) fail_with(errno);
        // Removed since. Whoever creates and removes all the time does not hold us for ever.
        if (++vanished > kMaxEntries) fail_with(EAGAIN);
        continue;
      }
      if (++count > kMaxEntries) over_cap();
      append_entry(piece, entry_of(found->d_name, status));
      if (piece.size() > kMaxData - 512) {  // 512: more than one entry can take
        put(FrameType::entries, piece.take());
        piece = Writer();
        flush(kMaxData);
      }
    }
    if (piece.size() != 0) put(FrameType::entries, piece.take());
    put(FrameType::end);
  }

  void archive() {
    if (kept_directories_.empty()) fail_with(EOPNOTSUPP);
    std::string buffer;
    const auto send = [&] {
      if (!buffer.empty()) put(FrameType::data, buffer);
      buffer.clear();
      flush(kMaxData);
    };
    for (const std::string& directory : kept_directories_) {
      archive_tree(directory, [&](std::string_view bytes) {
        while (!bytes.empty()) {
          const std::size_t room = std::min(bytes.size(), kMaxData - buffer.size());
          buffer += bytes.substr(0, room);
          bytes.remove_prefix(room);
          if (buffer.size() == kMaxData) send();
        }
      });
    }
    send();
    put(FrameType::end);
  }

  // As `write`: the answer always stands after `end`.
  void unpack() {
    std::string buffer;
    std::size_t taken = 0;
    bool ended = false;
    const auto next = [&] {
      std::optional<Frame> frame = await_frame(connection_, reader_);
      if (!frame) throw ConnectionOver{};
      ended = is(*frame, FrameType::end);
      if (ended) return;
      if (!is(*frame, FrameType::data)) throw ProtocolError("no data where a tree is unpacked");
      expect_data(*frame);
      reader_.reuse(std::exchange(buffer, std::move(frame->payload)));
      taken = 0;
    };
    const auto get = [&](std::span<char> bytes) {
      while (!bytes.empty()) {
        if (taken == buffer.size() && !ended) next();
        if (ended) fail_with(EBADMSG);
        const std::size_t size = std::min(bytes.size(), buffer.size() - taken);
        std::copy_n(buffer.data() + taken, size, bytes.data());
        taken += size;
        bytes = bytes.subspan(size);
      }
    };
    std::optional<Failure> failure;
    try {
      if (kept_directories_.empty()) fail_with(EOPNOTSUPP);
      for (const std::string& directory : kept_directories_) unpack_tree(directory, get);
      if (taken == buffer.size()) next();
      if (!ended) fail_with(EBADMSG);
    } catch (const OperationFailed& failed) {
      failure = failed.failure;
    } catch (const std::bad_alloc&) {
      failure = Failure{FailureReason::no_resources, ENOMEM, {}};
    }
    while (!ended) next();
    if (failure) throw OperationFailed{*failure};
    put(FrameType::done);
  }

  int connection_;
  const std::vector<std::string> kept_directories_;
  FrameReader reader_;
  FrameWriter writer_;
};

}  // namespace

int serve_files(sys::UniqueFd connection, sys::UniqueFd parent_alive, Place& place) noexcept try {
  FileServer server(connection.get(), place.kept_directories());
  // Where calls share a directory its default ACL counts in its place.
  umask(022);
  const int error = place.become_file_worker();
  harden_process(parent_alive.get());
  if (error != 0) {
    server.refuse_all(error);
    return 1;
  }
  server.serve();
  return 0;
} catch (const ConnectionOver&) {
  return 0;
} catch (const std::exception&) {
  return 1;
}

}  // namespace casemate::guest
