#include "casemate/sys/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "casemate/sys/error.h"

namespace casemate::sys {
namespace {

std::vector<std::string> components_of(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    throw_error(EINVAL, "open beneath a directory");
  }
  std::vector<std::string> components;
  bool outside = path.front() == '/';
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view component = path.substr(0, slash);
    outside = outside || component == "..";
    if (!component.empty() && component != ".") {
      components.emplace_back(component);
    }
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  if (outside) {
    throw_error(EXDEV, "open beneath a directory");
  }
  if (components.empty()) {
    components.emplace_back(".");
  }
  return components;
}

// -1 with errno, as the system call.
int open_by_kernel(int directory, const std::vector<std::string>& components, int flags) {
  std::string path;
  for (const std::string& component : components) {
    path += (path.empty() ? "" : "/") + component;
  }
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, directory, path.c_str(), &how, sizeof how));
}

// Not by O_DIRECTORY with O_NOFOLLOW: gVisor follows a link then.
UniqueFd open_component(int directory, const std::string& name, int flags) {
  const bool only_directories = (flags & O_DIRECTORY) != 0;
  const int first = only_directories ? O_PATH | O_CLOEXEC : flags;
  UniqueFd opened(openat(directory, name.c_str(), first | O_NOFOLLOW));
  if (!opened) {
    throw_errno("open beneath a directory");
  }
  if ((first & O_PATH) != 0) {
    const struct stat found = status_of(opened.get());
    // A link is opened as itself.
    if (S_ISLNK(found.st_mode)) {
      throw_error(ELOOP, "open beneath a directory");
    }
    if (only_directories && !S_ISDIR(found.st_mode)) {
      throw_error(ENOTDIR, "open beneath a directory");
    }
  }
  if (only_directories && (flags & O_PATH) == 0) {
    opened.reset(openat(opened.get(), ".", flags));
    if (!opened) {
      throw_errno("open beneath a directory");
    }
  }
  return opened;
}

unsigned char type_of(mode_t mode) { return static_cast<unsigned char>(IFTODT(mode)); }

}  // namespace

UniqueFd open_beneath(int directory, std::string_view path, int flags, BeneathMethod method) {
  const std::vector<std::string> components = components_of(path);
  flags |= O_CLOEXEC;
  if (method == BeneathMethod::kernel) {
    UniqueFd opened(open_by_kernel(directory, components, flags));
    if (opened) {
      return opened;
    }
    // EPERM is what older seccomp filters of container engines say to a call they do not know.
    if (errno != ENOSYS && errno != EPERM) {
      throw_errno("open beneath a directory");
    }
  }
  UniqueFd current;
  for (std::size_t i = 0; i + 1 < components.size(); ++i) {
    current = open_component(current ? current.get() : directory, components[i],
                             O_PATH | O_DIRECTORY | O_CLOEXEC);
  }
  return open_component(current ? current.get() : directory, components.back(), flags);
}

UniqueFd open_path(const std::string& path, int flags) {
  UniqueFd opened(open(path.c_str(), flags | O_CLOEXEC));
  if (!opened) {
    throw_errno("open " + path);
  }
  return opened;
}

std::optional<struct stat> entry_in(int directory, const std::string& name) {
  struct stat found{};
  if (fstatat(directory, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) {
    return found;
  }
  if (errno == ENOENT) {
    return std::nullopt;
  }
  throw_errno("stat");
}

struct stat status_of(int fd) {
  struct stat found{};
  if (fstat(fd, &found) != 0) {
    throw_errno("fstat");
  }
  return found;
}

bool is_within(int inner, int outer) {
  const auto same = [](const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  };
  const struct stat sought = status_of(outer);
  struct stat current = status_of(inner);
  UniqueFd held;
  while (!same(current, sought)) {
    UniqueFd parent(openat(held ? held.get() : inner, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!parent) {
      throw_errno("open a parent directory");
    }
    const struct stat above = status_of(parent.get());
    if (same(above, current)) {
      return false;  // the root is its own parent
    }
    current = above;
    held = std::move(parent);
  }
  return true;
}

std::vector<DirectoryEntry> read_directory(UniqueFd directory, std::size_t max_entries) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(directory.get()), closedir);
  if (stream == nullptr) {
    throw_errno("read a directory");
  }
  const int fd = directory.release();  // the stream's now
  std::vector<DirectoryEntry> entries;
  std::size_t vanished = 0;
  while (entries.size() < max_entries) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) {
        throw_errno("read a directory");
      }
      break;
    }
    DirectoryEntry found{entry->d_name, entry->d_type};
    if (found.name == "." || found.name == "..") {
      continue;
    }
    if (found.type == DT_UNKNOWN) {  // some file systems do not say
      const auto status = entry_in(fd, found.name);
      if (!status) {
        if (++vanished > max_entries) {
          throw_error(EAGAIN, "read a directory");
        }
        continue;
      }
      found.type = type_of(status->st_mode);
    }
    entries.push_back(std::move(found));
  }
  return entries;
}

std::optional<std::string> read_at_most(int fd, std::uint64_t max_bytes) {
  std::string content;
  // On the heap, as every large buffer here: callers may be threads and fibers with small stacks.
  std::string buffer(65536, '\0');
  while (true) {
    // Never asks for more than one byte past the cap: a file that grows is noticed, not copied.
    const std::uint64_t room = max_bytes - content.size();
    const std::size_t wanted =
        room < buffer.size() ? static_cast<std::size_t>(room) + 1 : buffer.size();
    const ssize_t got = read(fd, buffer.data(), std::min(wanted, buffer.size()));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw_errno("read");
    }
    if (got == 0) {
      return content;
    }
    if (static_cast<std::uint64_t>(got) > room) {
      return std::nullopt;
    }
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace casemate::sys
