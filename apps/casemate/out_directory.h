#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace casemate::app {

// Refuses, before anything starts, a directory that nothing could land in: what is there is none,
// or is a link that leads nowhere, or it (or, while it is missing, the nearest one above it) cannot
// be written to. Throws `InvalidArgument`. What changes later is found at the landing.
void refuse_unusable(const std::filesystem::path& out_dir);

// Remembers which directories of a path are not there yet and, unless told to keep them, removes
// those again when it goes: a refused run leaves nothing. Only empty directories are ever removed.
class OutDirectory {
 public:
  explicit OutDirectory(const std::filesystem::path& path);
  ~OutDirectory();
  OutDirectory(const OutDirectory&) = delete;
  OutDirectory& operator=(const OutDirectory&) = delete;

  void keep() { missing_.clear(); }

 private:
  std::vector<std::filesystem::path> missing_;  // deepest first
};

}  // namespace casemate::app
