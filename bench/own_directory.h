#pragma once

#include <filesystem>
#include <functional>

#include "casemate/sys/unique_fd.h"

namespace casemate::bench {

// A directory under /tmp, removed at the end. It carries a lock that this process holds: what a
// killed one left is told by that, and removed by the next sweep.
class OwnDirectory {
 public:
  // Throws `std::system_error`.
  OwnDirectory();
  ~OwnDirectory();
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  sys::UniqueFd lock_;
};

// Removes the directories of this user whose process is gone, each after `before` was told of it.
// Those of living processes are left alone. Never throws; what `before` throws is passed over.
void sweep_own_directories(
    const std::function<void(const std::filesystem::path& directory)>& before) noexcept;

}  // namespace casemate::bench
