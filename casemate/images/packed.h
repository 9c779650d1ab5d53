#pragma once

// Images as one read-only file, for guests that share no files with this machine.

#include <functional>
#include <string>
#include <string_view>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/images/store.h"

namespace casemate::images {

struct PackedImagesOptions {
  // The image directory; what is packed lies in packed/ below it. Absolute; made with mode 0700
  // when it is missing, and refused when it is not this user's alone.
  std::string directory{};
  // A name looked up on PATH, or a path.
  std::string mksquashfs = "mksquashfs";
  // Told what is being done, one line of valid UTF-8 a step, from the calling thread.
  std::function<void(std::string_view)> progress{};
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
// when it is whole. Nothing is removed here, neither old files nor what a killed process left half
// made (new.*): both may be deleted when no machine runs. Thread-safe.
class PackedImages {
 public:
  explicit PackedImages(PackedImagesOptions options);

  // Throws `SandboxImageNotSupported` (no mksquashfs here), `SandboxUnavailable` (it failed, no
  // room, a directory that cannot be read or has over 2 million entries), `SandboxCancelled`,
  // `SandboxTimeout`.
  PackedImage hold(const HeldImage& image, const CallControl& control) const;

 private:
  void pack(const HeldImage& image, int directory, const std::string& name,
            const CallControl& control) const;

  PackedImagesOptions options_;
};

}  // namespace casemate::images
