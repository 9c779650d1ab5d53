#include "apps/casemate/out_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

void refuse_unusable(const std::filesystem::path& out_dir) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        fmt::format("--out-dir '{}' {}", escape_for_display(out_dir.native()), why),
        "give a directory that can be written to, or a name that is free");
  };
  std::error_code ignored;
  std::filesystem::path current = std::filesystem::absolute(out_dir, ignored);
  if (!current.has_filename()) current = current.parent_path();
  struct stat status{};
  while (::stat(current.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse(fmt::format("cannot be used: {}", std::strerror(errno)));
    if (::lstat(current.c_str(), &status) == 0) refuse("is or is below a link to nothing");
    // The working directory itself may be gone.
    if (!current.has_relative_path()) refuse("cannot be made: there is nothing to make it in");
    current = current.parent_path();
  }
  if (!S_ISDIR(status.st_mode)) refuse("is no directory");
  if (::faccessat(AT_FDCWD, current.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    refuse(fmt::format("cannot be written to: {}", std::strerror(errno)));
  }
}

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
