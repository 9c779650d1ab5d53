#include "casemate/transfer/directory_root.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"

namespace casemate {

DirectoryRoot hold_root(const std::filesystem::path& root, std::string_view what) {
  try {
    DirectoryRoot result;
    result.path = std::filesystem::canonical(root);
    result.held = sys::open_path(result.path.native(), O_PATH | O_DIRECTORY);
    return result;
  } catch (const std::system_error& error) {
    throw InvalidArgument(fmt::format("{} \"{}\" cannot be used: {}", what,
                                      escape_for_display(root.native()), error.code().message()),
                          "name a directory that this user may enter");
  }
}

}  // namespace casemate
