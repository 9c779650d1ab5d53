#include "casemate/sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "casemate/sys/error.h"

namespace casemate::sys {

UniqueFd open_at(int directory, const char* path, int flags, unsigned mode) {
  UniqueFd descriptor(openat(directory, path, flags | O_CLOEXEC, mode));
  if (!descriptor) throw_errno(std::string("opening ") + path);
  return descriptor;
}

UniqueFd duplicate(int descriptor) {
  UniqueFd copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw_errno("duplicating a descriptor");
  return copy;
}

std::string read_file_at(int directory, const char* path, std::size_t max_bytes) {
  const UniqueFd file = open_at(directory, path, O_RDONLY | O_NOFOLLOW);
  std::string content;
  char chunk[16384];
  while (true) {
    const ssize_t count = read(file.get(), chunk, sizeof chunk);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_errno(std::string("reading ") + path);
    }
    if (count == 0) return content;
    content.append(chunk, static_cast<std::size_t>(count));
    if (content.size() > max_bytes) throw_error(EFBIG, std::string("reading ") + path);
  }
}

std::optional<std::string> read_file_if_there(int directory, const char* path,
                                              std::size_t max_bytes) {
  try {
    return read_file_at(directory, path, max_bytes);
  } catch (const std::system_error& error) {
    if (error.code().value() == ENOENT) return std::nullopt;
    throw;
  }
}

namespace {

// What one write took of bytes that were not none; 0 when it is to be tried again.
std::size_t taken(ssize_t count, const char* what) {
  if (count > 0) return static_cast<std::size_t>(count);
  if (count == 0) throw_error(EIO, what);
  if (errno == EINTR) return 0;
  throw_errno(what);
}

}  // namespace

void write_all(int file, std::span<const char> bytes, const char* what) {
  while (!bytes.empty()) {
    bytes = bytes.subspan(taken(write(file, bytes.data(), bytes.size()), what));
  }
}

void write_all_at(int file, std::span<const char> bytes, std::uint64_t offset, const char* what) {
  while (!bytes.empty()) {
    const std::size_t count =
        taken(pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset)), what);
    bytes = bytes.subspan(count);
    offset += count;
  }
}

void write_file_at(int directory, const char* path, std::string_view content, unsigned mode) {
  const UniqueFd file = open_at(directory, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
  write_all(file.get(), content, (std::string("writing ") + path).c_str());
}

void write_control_file_at(int directory, const char* path, std::string_view content) {
  const UniqueFd file = open_at(directory, path, O_WRONLY);
  const ssize_t count = write(file.get(), content.data(), content.size());
  if (count > 0 || (count == 0 && content.empty())) return;
  throw_error(count == 0 ? EIO : errno, "writing \"" + std::string(content) + "\" to " + path);
}

void make_directory_at(int directory, const char* path, unsigned mode) {
  if (mkdirat(directory, path, mode) < 0 && errno != EEXIST) {
    throw_errno(std::string("making the directory ") + path);
  }
}

std::vector<std::string> list_directory_at(int directory, const char* path) {
  UniqueFd descriptor = open_at(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(descriptor.get()), &closedir);
  if (stream == nullptr) throw_errno(std::string("listing ") + path);
  static_cast<void>(descriptor.release());  // the stream owns it now
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) throw_errno(std::string("listing ") + path);
      return names;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

std::optional<std::string> path_of(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char target[PATH_MAX];
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  if (length < 0) throw_errno("reading " + link);
  std::string path(target, static_cast<std::size_t>(length));
  if (path.ends_with(" (deleted)")) return std::nullopt;
  return path;
}

}  // namespace casemate::sys
