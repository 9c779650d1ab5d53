#pragma once

// Images as one read-only file, for guests that share no files with this machine.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/images/collection.h"
#include "casemate/images/progress.h"
#include "casemate/images/store.h"

namespace casemate::images {

struct PackedImagesOptions {
  // The image directory; what is packed lies in packed/ below it. Absolute; made with mode 0700
  // when it is missing, and refused when it is not this user's alone.
  std::string directory{};
  // A name looked up on PATH, or a path.
  std::string mksquashfs = "mksquashfs";
  // Told of packing, by the bytes that are packed already.
  ProgressSink progress{};
  // What goes of packed directories, when another is packed.
  CollectionRule collection{};
  // What time it is; for tests, which hold it.
  std::function<Clocks()> clocks = read_clocks;
};

// What `hold` gives.
struct PackedImage {
  // Absolute. Readable by everybody who can reach it.
  std::string path;
  // 64 hex digits, which change when what is in the image does.
  std::string digest;
};

// Packs images as squashfs files (zstd), each once, by what is in it: an image of the store by its
// id, a directory by the names, sizes, inodes and times of all that is in it, looked at each time
// (a directory that is changed while it is packed is packed as it was found, and then again).
// Owners are all root's, modes stay; devices and extended attributes are left out.
//
// Several processes may share a directory, and any may be killed at any instruction: a file appears
// when it is whole and on the disk, and nothing else is left. What is packed of an image of the
// store goes with that (`discard_packed`), of a directory by the rule; a machine that runs from it
// keeps it open. Thread-safe.
class PackedImages {
 public:
  explicit PackedImages(PackedImagesOptions options);

  // Throws `SandboxImageNotSupported` (no mksquashfs here), `SandboxUnavailable` (it failed, no
  // room, a directory that cannot be read or has over 2 million entries), `SandboxCancelled`,
  // `SandboxTimeout`.
  PackedImage hold(const HeldImage& image, const CallControl& control) const;

 private:
  void pack(const HeldImage& image, int directory, int file, const CallControl& control) const;
  void collect_directories(int directory, const std::string& but) const noexcept;

  PackedImagesOptions options_;
};

// Whether anything is packed under that digest. `store` is the image directory.
bool is_packed(const std::string& store, std::string_view digest);

// Removes what is packed of the image of the store with that identity. `store` is the image
// directory, open. Throws `std::system_error`.
void discard_packed(int store, std::string_view identity);
// The same of every image of the store that is not among `identities` (asked for once the files
// were listed): a process may have been killed between an image's end and its file's.
void sweep_packed(int store, const std::function<std::vector<std::string>()>& identities);

}  // namespace casemate::images
