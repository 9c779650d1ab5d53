#include "casemate/guest/agent/directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "casemate/sys/beneath.h"

namespace casemate::guest {
namespace {

constexpr int kWalkFlags = O_PATH | O_DIRECTORY;

sys::UniqueFd open_root() {
  sys::UniqueFd root(open("/", kWalkFlags | O_CLOEXEC));
  if (!root) fail_with(errno);
  return root;
}

sys::UniqueFd walk(int from, const std::string& relative) {
  return open_below(from, relative, kWalkFlags);
}

bool is_missing(const OperationFailed& failed) {
  return failed.failure.reason == FailureReason::errno_value && failed.failure.error == ENOENT;
}

sys::UniqueFd walk_creating(sys::UniqueFd at, std::string_view relative) {
  while (!relative.empty()) {
    const std::size_t slash = relative.find('/');
    const std::string name(relative.substr(0, slash));
    relative.remove_prefix(slash == std::string_view::npos ? relative.size() : slash + 1);
    if (mkdirat(at.get(), name.c_str(), 0777) != 0 && errno != EEXIST) {
      // Where we may not create, it may still be there.
      const int error = errno;
      struct stat status{};
      if (fstatat(at.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fail_with(error);
    }
    at = walk(at.get(), name);
  }
  return at;
}

}  // namespace

void fail_with(int error_number) {
  throw OperationFailed{{FailureReason::errno_value, error_number, {}}};
}

void refuse_path() { throw OperationFailed{{FailureReason::path_refused, 0, {}}}; }

sys::UniqueFd open_below(int directory, const std::string& relative, int flags) try {
  return sys::open_beneath(directory, relative.empty() ? "." : relative, flags);
} catch (const std::system_error& error) {
  const int number = error.code().value();
  if (number == ELOOP || number == EXDEV) refuse_path();
  fail_with(number);
}

sys::UniqueFd open_directory(const std::string& absolute) {
  return walk(open_root().get(), absolute.substr(1));
}

ParentAndLeaf open_parent(const FilePath& file, MissingParents missing) {
  const std::size_t slash = file.path.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : file.path.substr(0, slash);
  std::string leaf = slash == std::string::npos ? file.path : file.path.substr(slash + 1);
  try {
    return {walk(open_directory(file.directory).get(), parent), std::move(leaf)};
  } catch (const OperationFailed& failed) {
    if (missing == MissingParents::fail || !is_missing(failed)) throw;
  }
  sys::UniqueFd made = walk_creating(open_root(), file.directory.substr(1));
  return {walk_creating(std::move(made), parent), std::move(leaf)};
}

}  // namespace casemate::guest
