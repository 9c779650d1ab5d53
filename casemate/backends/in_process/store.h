#pragma once

// The file tree of the in-process fake.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "casemate/core/sandbox.h"
#include "casemate/core/sandbox_entry.h"
#include "casemate/core/vocabulary.h"

namespace casemate::in_process {

// What is put somewhere before a test begins: a file with these bytes, or a directory, a link or a
// special file.
using Seed = std::variant<std::string, EntryKind>;

// A tree of guest files in memory, with the confinement rules of `GuestFiles`.
//
// Links have no target: a walk that meets one is refused, so the tree shows the *shape* of
// confinement. It proves nothing about safety, which lies in how a real guest checks and uses a
// path in one act. Writing over a special file or a directory replaces it. Thread-safe.
class Store {
 public:
  // "/", "/tmp" and "/home/user" exist.
  Store();

  // -- As the host sees it: confined, refusals as `GuestFiles` documents them ---------------------
  void write_file(std::string_view path, std::span<const char> content,
                  std::string_view working_directory);
  std::optional<SandboxEntry> stat_file(std::string_view path,
                                        std::string_view working_directory) const;
  std::string read_file(std::string_view path, std::string_view working_directory,
                        std::uint64_t max_bytes) const;
  void remove(std::string_view path, std::string_view working_directory, Recursive recursive);
  std::vector<SandboxEntry> list_dir(std::string_view path,
                                     std::string_view working_directory) const;

  // The absolute form of a program's directory. Throws `SandboxPathRefused` when it leads through a
  // link, `SandboxFileError` with ENOENT or ENOTDIR.
  std::string program_directory(std::string_view path, std::string_view working_directory) const;

  // -- As a program or a test sees it: absolute paths, nothing is refused but a malformed one -----

  // Each makes the directories above. Throws `InvalidArgument` for a path that is not absolute, is
  // "/", or for `EntryKind::file` without bytes.
  void put(std::string_view absolute_path, Seed seed);
  void put_file(std::string_view absolute_path, std::string bytes);
  // Removes what is there and below, if anything.
  void erase(std::string_view absolute_path);
  bool contains(std::string_view absolute_path) const;
  // Bytes of a regular file; absent for anything else.
  std::optional<std::string> bytes(std::string_view absolute_path) const;

  // Every regular file by absolute path.
  std::map<std::string, std::string> contents() const;
  // The same as text. Throws `InvalidArgument` naming a file that is not valid UTF-8.
  std::map<std::string, std::string> files() const;
  // Everything as it is now, to be put back with `load`.
  struct Saved;
  std::shared_ptr<const Saved> save() const;
  void load(const Saved& saved);

  // Absolute paths of one kind, sorted.
  std::vector<std::string> paths_of(EntryKind kind) const;

 private:
  struct Node {
    EntryKind kind = EntryKind::directory;
    std::string content;
  };

  std::optional<SandboxEntry> lookup(const std::string& absolute_path) const;
  void make_directories_above(std::string_view absolute_path);
  void put_locked(std::string_view absolute_path, Node node);

  mutable std::mutex mutex_;
  std::map<std::string, Node, std::less<>> nodes_;
};

}  // namespace casemate::in_process
