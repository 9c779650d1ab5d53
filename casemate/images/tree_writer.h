#pragma once

// Writes the layers of an image into one directory, the lowest first.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "casemate/images/tar_stream.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {

// Deeper trees are refused, so that a tree of ours can be walked with a descriptor a level.
inline constexpr std::size_t kMaxDepth = 128;

// Makes what entries of layers describe, below one directory and never through a link: check and
// use are one act (sys/beneath.h). Rules:
//
//  - Names are bytes. Absolute ones, `..`, components over 255 bytes, more than 4095 bytes in all
//    or 128 components are refused. A parent that is missing is made; one that is a link or no
//    directory is refused.
//  - A later entry replaces an earlier one of its name, whatever both are; only a directory keeps
//    what is in it when another comes. A symbolic link's target is content and may be anything. A
//    hard link's is the name of an entry that exists.
//  - Whiteouts (`.wh.NAME`) and opaque directories (`.wh..wh..opq`) hide what lower layers wrote,
//    in whatever order they stand in their own.
//  - Kept of an entry: its name, content, times, and whether its owner may execute it. Everything
//    belongs to this process's user, directories are 0755 and files 0755 or 0644: no set-user-id,
//    no owners, no extended attributes. Devices, FIFOs and sockets are passed over.
//
// Throws `SandboxImageInvalid` naming the entry and the layer, `std::system_error` for what this
// machine cannot do (ENOSPC). The directory belongs to the writer alone while it works.
class TreeWriter {
 public:
  // `root` is borrowed.
  explicit TreeWriter(int root) : root_(root) {}

  // Takes the next layer's entries, read to their end.
  void add_layer(TarStream& layer);

  // Files and links written, replaced ones too; entries passed over.
  std::uint64_t files() const { return files_; }
  std::uint64_t passed_over() const { return passed_over_; }
  // The sizes of files written.
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Place {
    sys::UniqueFd parent;
    std::string name;
  };

  void add(const TarEntry& entry, TarStream& layer);
  void add_file(const std::string& path, const TarEntry& entry, TarStream& layer);
  void add_directory(const std::string& path);
  void add_symbolic_link(const std::string& path, const TarEntry& entry);
  void add_hard_link(const std::string& path, const TarEntry& entry);
  void hide(const std::string& directory, std::string_view hidden);

  Place place_of(const std::string& path);
  sys::UniqueFd open_directory(const std::string& path);
  void touch(const std::string& path);
  // Removes what lower layers wrote at `path`.
  void remove_lower(int parent, const std::string& name, const std::string& path);

  int root_;
  unsigned layer_ = 0;
  // What this layer wrote, with the directories above.
  std::unordered_set<std::string> touched_;
  std::uint64_t files_ = 0;
  std::uint64_t passed_over_ = 0;
  std::uint64_t bytes_ = 0;
};

// Removes what has that name, a directory with all that is in it. Quiet when there is nothing.
// Throws `std::system_error`.
void remove_entry(int parent, const std::string& name);

}  // namespace casemate::images
