#include "casemate/images/tree_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

constexpr std::string_view kWhiteout = ".wh.";
// Of the file system that whiteouts are called after; only the opaque mark means something here.
constexpr std::string_view kWhiteoutMeta = ".wh..wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxPathBytes = 4095;

// Thrown within, and given the entry's name where that is known.
struct EntryRefused {
  std::string why;
};

// `name` with its empty and "." components left out; empty for the root itself.
std::string normalise(std::string_view name) {
  if (name.starts_with('/')) throw EntryRefused{"its name is absolute"};
  if (name.size() > kMaxPathBytes) {
    throw EntryRefused{fmt::format("its name has more than {} bytes", kMaxPathBytes)};
  }
  std::string path;
  std::size_t depth = 0;
  while (!name.empty()) {
    const std::size_t slash = std::min(name.find('/'), name.size());
    const std::string_view component = name.substr(0, slash);
    name.remove_prefix(std::min(slash + 1, name.size()));
    if (component.empty() || component == ".") continue;
    if (component == "..") throw EntryRefused{"its name leads outside, by \"..\""};
    if (component.size() > kMaxNameBytes) {
      throw EntryRefused{fmt::format("a part of its name has more than {} bytes", kMaxNameBytes)};
    }
    if (++depth > kMaxDepth) {
      throw EntryRefused{fmt::format("it lies deeper than {} directories", kMaxDepth)};
    }
    if (!path.empty()) path += '/';
    path += component;
  }
  return path;
}

// "" for a name at the top.
std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? std::string() : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string join(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : fmt::format("{}/{}", directory, name);
}

void make_directory(int parent, const std::string& name) {
  if (mkdirat(parent, name.c_str(), 0755) < 0) sys::throw_errno("making an image's directory");
  // Whatever the umask of this process.
  if (fchmodat(parent, name.c_str(), 0755, 0) < 0) sys::throw_errno("making an image's directory");
}

}  // namespace

void remove_entry(int parent, const std::string& name) {
  if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR) sys::throw_errno("removing an image's file");
  {
    const UniqueFd directory =
        sys::open_at(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    for (const std::string& inner : sys::list_directory_at(directory.get(), ".")) {
      remove_entry(directory.get(), inner);
    }
  }
  if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) < 0 && errno != ENOENT) {
    sys::throw_errno("removing an image's directory");
  }
}

void TreeWriter::add_layer(TarStream& layer) {
  ++layer_;
  touched_.clear();
  while (const std::optional<TarEntry> entry = layer.next()) {
    try {
      add(*entry, layer);
    } catch (const EntryRefused& refused) {
      throw SandboxImageInvalid(fmt::format("entry '{}' of the image's layer {} is refused: {}",
                                            escape_for_display(entry->name), layer_, refused.why),
                                "build the image anew without it");
    }
  }
}

void TreeWriter::add(const TarEntry& entry, TarStream& layer) {
  const std::string path = normalise(entry.name);
  if (path.empty()) {
    if (entry.kind != EntryKind::directory) throw EntryRefused{"it would replace the root"};
    return;
  }
  const std::string name = name_of(path);
  if (name.starts_with(kWhiteout)) {
    if (name == kOpaque) {
      hide(parent_of(path), "");
    } else if (!name.starts_with(kWhiteoutMeta)) {
      const std::string_view hidden = std::string_view(name).substr(kWhiteout.size());
      if (hidden.empty() || hidden == "." || hidden == "..") {
        throw EntryRefused{"it hides nothing that has a name"};
      }
      hide(parent_of(path), hidden);
    }
    return;
  }
  switch (entry.kind) {
    case EntryKind::file:
      return add_file(path, entry, layer);
    case EntryKind::directory:
      return add_directory(path);
    case EntryKind::symbolic_link:
      return add_symbolic_link(path, entry);
    case EntryKind::hard_link:
      return add_hard_link(path, entry);
    case EntryKind::other:
      ++passed_over_;
  }
}

void TreeWriter::add_file(const std::string& path, const TarEntry& entry, TarStream& layer) {
  const Place place = place_of(path);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd file(openat(place.parent.get(), place.name.c_str(), kFlags, 0600));
  if (!file && errno == EEXIST) {
    remove_entry(place.parent.get(), place.name);
    file.reset(openat(place.parent.get(), place.name.c_str(), kFlags, 0600));
  }
  if (!file) sys::throw_errno("making an image's file");
  touch(path);
  std::uint64_t end = 0;
  while (const auto block = layer.read()) {
    sys::write_all_at(file.get(), block->bytes, block->offset, "writing an image's file");
    end = block->offset + block->bytes.size();
  }
  // What a sparse file leaves out at its end.
  if (end < entry.size && ftruncate(file.get(), static_cast<off_t>(entry.size)) < 0) {
    sys::throw_errno("making an image's file");
  }
  if (fchmod(file.get(), entry.executable ? 0755 : 0644) < 0) {
    sys::throw_errno("making an image's file");
  }
  // Compiled Python files name the time of their source. A time that this file system cannot hold
  // is the nearest that it can.
  const timespec times[2] = {{.tv_sec = entry.modified, .tv_nsec = entry.modified_nanoseconds},
                             {.tv_sec = entry.modified, .tv_nsec = entry.modified_nanoseconds}};
  static_cast<void>(futimens(file.get(), times));
  ++files_;
  bytes_ += entry.size;
}

void TreeWriter::add_directory(const std::string& path) {
  const Place place = place_of(path);
  const auto found = sys::entry_in(place.parent.get(), place.name);
  if (!found || !S_ISDIR(found->st_mode)) {
    if (found) remove_entry(place.parent.get(), place.name);
    make_directory(place.parent.get(), place.name);
  }
  touch(path);
}

void TreeWriter::add_symbolic_link(const std::string& path, const TarEntry& entry) {
  if (entry.target.empty()) throw EntryRefused{"it leads to an empty name"};
  if (entry.target.size() > kMaxPathBytes) {
    throw EntryRefused{fmt::format("it leads to a name of more than {} bytes", kMaxPathBytes)};
  }
  const Place place = place_of(path);
  remove_entry(place.parent.get(), place.name);
  if (symlinkat(entry.target.c_str(), place.parent.get(), place.name.c_str()) < 0) {
    sys::throw_errno("making an image's link");
  }
  touch(path);
  ++files_;
}

void TreeWriter::add_hard_link(const std::string& path, const TarEntry& entry) {
  const std::string target = normalise(entry.target);
  if (target.empty()) throw EntryRefused{"it is a hard link to the root"};
  if (target == path) return;
  UniqueFd holder;
  try {
    holder = open_directory(parent_of(target));
  } catch (const std::system_error& error) {
    if (error.code().value() != ENOENT) throw;
  }
  const auto found = holder ? sys::entry_in(holder.get(), name_of(target)) : std::nullopt;
  if (!found) throw EntryRefused{"it is a hard link to an entry that is not there"};
  if (S_ISDIR(found->st_mode)) throw EntryRefused{"it is a hard link to a directory"};
  const Place place = place_of(path);
  const auto replaced = sys::entry_in(place.parent.get(), place.name);
  // Removing it could remove what it leads to.
  if (replaced && S_ISDIR(replaced->st_mode) && target.starts_with(path + "/")) {
    throw EntryRefused{"it is a hard link into what it replaces"};
  }
  if (replaced && replaced->st_dev == found->st_dev && replaced->st_ino == found->st_ino) {
    return touch(path);
  }
  if (replaced) remove_entry(place.parent.get(), place.name);
  if (linkat(holder.get(), name_of(target).c_str(), place.parent.get(), place.name.c_str(), 0) <
      0) {
    if (errno == EMLINK) throw EntryRefused{"it is one hard link more than a file can have"};
    sys::throw_errno("making an image's link");
  }
  touch(path);
  ++files_;
}

// `hidden` empty: everything in the directory.
void TreeWriter::hide(const std::string& directory, std::string_view hidden) {
  UniqueFd holder;
  try {
    holder = open_directory(directory);
  } catch (const std::system_error& error) {
    if (error.code().value() == ENOENT) return;
    throw;
  }
  if (!hidden.empty()) {
    return remove_lower(holder.get(), std::string(hidden), join(directory, hidden));
  }
  for (const std::string& name : sys::list_directory_at(holder.get(), ".")) {
    remove_lower(holder.get(), name, join(directory, name));
  }
}

void TreeWriter::remove_lower(int parent, const std::string& name, const std::string& path) {
  const auto found = sys::entry_in(parent, name);
  if (!found) return;
  if (!touched_.contains(path)) return remove_entry(parent, name);
  if (!S_ISDIR(found->st_mode)) return;
  const UniqueFd directory =
      sys::open_at(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  for (const std::string& inner : sys::list_directory_at(directory.get(), ".")) {
    remove_lower(directory.get(), inner, join(path, inner));
  }
}

// The directory that is to hold `path`, made where it is missing.
TreeWriter::Place TreeWriter::place_of(const std::string& path) {
  const std::string parent = parent_of(path);
  try {
    return {.parent = open_directory(parent), .name = name_of(path)};
  } catch (const std::system_error& error) {
    if (error.code().value() != ENOENT) throw;
  }
  Place above = place_of(parent);
  make_directory(above.parent.get(), above.name);
  touch(parent);
  return {.parent = open_directory(parent), .name = name_of(path)};
}

// ENOENT where there is none.
UniqueFd TreeWriter::open_directory(const std::string& path) {
  try {
    // For reading, because the system's own listing needs it, and O_PATH serves no fchmodat.
    return sys::open_beneath(root_, path.empty() ? "." : path, O_RDONLY | O_DIRECTORY);
  } catch (const std::system_error& error) {
    if (error.code().value() == ELOOP) {
      throw EntryRefused{"it would go through a link, which is never followed while unpacking"};
    }
    if (error.code().value() == ENOTDIR) throw EntryRefused{"it would lie in what is no directory"};
    throw;
  }
}

void TreeWriter::touch(const std::string& path) {
  for (std::string_view part = path; touched_.emplace(part).second;) {
    const std::size_t slash = part.rfind('/');
    if (slash == part.npos) break;
    part = part.substr(0, slash);
  }
}

}  // namespace casemate::images
