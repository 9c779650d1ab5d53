#pragma once

// Images on this machine, unpacked once and shared by every sandbox.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/images/collection.h"
#include "casemate/images/idle_times.h"
#include "casemate/images/progress.h"
#include "casemate/images/reference.h"
#include "casemate/images/tar_stream.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {

struct ImageStoreOptions {
  // Absolute. Empty: /var/lib/casemate for root, else $XDG_DATA_HOME/casemate or
  // ~/.local/share/casemate.
  std::string directory{};
  // Of one image, all layers together: bytes unpacked, and entries. Far above what images have
  // (the largest published Python images unpack to some 3 GiB and 100,000 entries).
  TarBounds bounds{.max_bytes = 32ULL << 30U, .max_entries = 2000000};
  // A name looked up on PATH, or a path.
  std::string skopeo = "skopeo";
  // Told what is being done with an image and how far that is, of layers by their bytes as they lie
  // there.
  ProgressSink progress{};
  // What goes by itself, when another image was unpacked: never one that a sandbox runs from.
  CollectionRule collection{};
  // What time it is; for tests, which hold it.
  std::function<Clocks()> clocks = read_clocks;
  Log log{};
};

// An image as programs see it. While this lives the store keeps the image.
struct HeldImage {
  // The root directory, open for reading. Of an image of the store it carries a shared lock
  // (flock), which belongs to the open file: a process that got this very descriptor, by fork or
  // over a socket, keeps the image too, for as long as it has it.
  sys::UniqueFd root;
  // Changes when the image does: `sha256:<64 hex>` of an image of the store, `dir:PATH` with the
  // directory's device and inode.
  std::string identity;
  // The image's own variables by name.
  std::map<std::string, std::string> environment;
};

// An image of the store.
struct StoredImage {
  // Digest of its config, `sha256:<64 hex>`; what docker calls the image's id.
  std::string id;
  // What it was imported as, sorted.
  std::vector<std::string> references;
  std::string architecture;
  std::uint64_t layers = 0;
  // Of its files; links and directories are not counted.
  std::uint64_t bytes = 0;
  // Files and links.
  std::uint64_t files = 0;
  // Devices, FIFOs and sockets of the archives, which are not unpacked.
  std::uint64_t passed_over = 0;
  // Seconds since 1970, as is when it was held last.
  std::int64_t imported = 0;
  std::int64_t used = 0;
  std::map<std::string, std::string> environment;
  // Somebody, a live sandbox most likely, holds it now.
  bool in_use = false;
};

// The store in one directory, of this user alone (mode 0700). Several processes use one at a time:
//
//   images/<64 hex>/{image.json,root/}  unpacked, by id; comes and goes by rename
//   references/<64 hex>.json            what an id was imported as, by the digest of the reference
//   new/<random>/                       being made, locked by its maker
//   trash/<random>/                     being removed
//   locks/                              never deleted: two owners of one name must meet
//   packed/                             what is made of images for virtual machines (packed.h)
//
// An image is a flattened tree: what its layers hide from one another is gone, the layers are not
// kept, and two images share nothing. A process may be killed at any instruction; what it leaves in
// new/ and trash/ the next import, list or remove takes away. Thread-safe.
//
// Everything in an image can be read by programs that run from it, whatever its modes said.
class ImageStore {
 public:
  explicit ImageStore(ImageStoreOptions options = {});
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  // The image, imported first where the store does not have it (a registry is asked only then).
  // `dir:` is used where it is, and never copied. Throws `InvalidArgument` for `host`,
  // `SandboxImageInvalid` (nothing there, corrupt, hostile, over the bounds, for another machine,
  // an id that is not here), `InvalidArgument` for the beginning of several ids,
  // `SandboxImageNotSupported` (no skopeo), `SandboxUnavailable` (disk full, directory not ours),
  // `SandboxCancelled`, `SandboxTimeout`; nothing is left then.
  HeldImage hold(const ImageReference& reference, const CallControl& control);

  // Refuses of what `hold` would refuse that which can be told without importing: what is not
  // there, and an archive or a layout whose documents cannot be used. A registry is not asked.
  // Throws as `hold`.
  void check(const ImageReference& reference, const CallControl& control);

  // Imports it, also where a registry's is here already and its tag may have moved on. What is
  // unpacked already is not unpacked again. Throws as `hold`, and `InvalidArgument` for `dir:`.
  StoredImage import(const ImageReference& reference, const CallControl& control);

  // By id. Throws `SandboxUnavailable`.
  std::vector<StoredImage> list();

  // Removes the image that an id, the beginning of one (12 digits or more) or a reference names,
  // with all its references. Throws `SandboxImageInvalid` when there is none, `SandboxBusy` when it
  // is in use.
  StoredImage remove(std::string_view name);
  // Removes every image that is not in use; returns them.
  std::vector<StoredImage> remove_unused();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Where the store is when nobody says. Throws `SandboxUnavailable` for a user without a home.
std::string default_store_directory();

}  // namespace casemate::images
