#pragma once

// The directory that a sink or a store is about. Not for users of the library.

#include <filesystem>
#include <string_view>

#include "casemate/sys/unique_fd.h"

namespace casemate {

struct DirectoryRoot {
  std::filesystem::path path;  // absolute, without links
  sys::UniqueFd held;          // O_PATH
};

// Resolves and opens `root`. Throws `InvalidArgument` naming it; `what` says what it is for.
DirectoryRoot hold_root(const std::filesystem::path& root, std::string_view what);

}  // namespace casemate
