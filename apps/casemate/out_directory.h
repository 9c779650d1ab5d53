#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace casemate::app {

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
