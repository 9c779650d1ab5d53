#pragma once

// The directories and locks of an image store (store.h).

#include <optional>
#include <string>
#include <string_view>

#include "casemate/core/control.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {

// A lock on an open file, given back with it.
enum class LockKind { shared, exclusive };
// Whether it was had, without waiting. Throws `std::system_error`.
bool try_lock(int file, LockKind kind);

// The directory `part` in the image directory `store`, both made where they are missing, for what
// else is made of images. Throws as `StoreDirectory` does.
sys::UniqueFd open_part_of_store(const std::string& store, const std::string& part);

// Of what is in an image's directory, the tree that sandboxes run from.
inline constexpr char kImageRootName[] = "root";

class StoreDirectory {
 public:
  // Makes what is missing, parents too. Throws `SandboxUnavailable` for a directory that is not
  // this user's alone (mode 0700), a link, or cannot be made.
  explicit StoreDirectory(const std::string& path);

  int root() const { return root_.get(); }
  int images() const { return images_.get(); }
  int references() const { return references_.get(); }
  int trash() const { return trash_.get(); }

  // Waits for the exclusive lock of that name. Throws `SandboxCancelled`, `SandboxTimeout`,
  // `std::system_error`.
  sys::UniqueFd lock(const std::string& name, const CallControl& control) const;

  // Removes what killed processes left. Throws `std::system_error`.
  void sweep() const;

  // Moves `images/NAME` out of sight and removes it.
  void discard_image(const std::string& name) const;

 private:
  friend class NewDirectory;
  sys::UniqueFd root_;
  sys::UniqueFd images_;
  sys::UniqueFd references_;
  sys::UniqueFd new_;
  sys::UniqueFd trash_;
  sys::UniqueFd locks_;
};

// A directory in new/ that is this process's: no sweep touches it. Removed with what is in it
// unless it was published.
class NewDirectory {
 public:
  explicit NewDirectory(const StoreDirectory& store);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  int get() const { return directory_.get(); }

  // Makes what is in it last, and gives it the name `images/NAME`. Throws `std::system_error`;
  // EEXIST when something has that name.
  void publish(const std::string& name);

 private:
  const StoreDirectory& store_;
  std::string name_;
  sys::UniqueFd directory_;
  int owner_;
};

}  // namespace casemate::images
