#include "apps/casemate/out_directory.h"

#include <unistd.h>

#include <system_error>

namespace casemate::app {

OutDirectory::OutDirectory(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::path current = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!current.has_filename()) current = current.parent_path();
  while (!current.empty() && !std::filesystem::exists(current, ignored)) {
    missing_.push_back(current);
    current = current.parent_path();
  }
}

OutDirectory::~OutDirectory() {
  for (const auto& directory : missing_) {
    if (::rmdir(directory.c_str()) != 0) return;
  }
}

}  // namespace casemate::app
