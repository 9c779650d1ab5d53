// What a sandbox's guest gives for a snapshot, put back into another: nothing is touched beside the
// tree, and what was made can be kept again as it is.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "casemate/guest/agent/directory.h"
#include "casemate/guest/agent/tree_archive.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace casemate::guest;

constexpr std::string_view kCanary = "untouched";

// What a tree's owner closed to itself can be removed too.
void open_up(const fs::path& directory) {
  std::error_code ignored;
  fs::permissions(directory, fs::perms::owner_all, ignored);
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.symlink_status(ignored).type() == fs::file_type::directory) open_up(entry.path());
  }
}

// A directory of this process's, with two trees in it and a file beside them.
class Place {
 public:
  Place() {
    std::string path = (fs::temp_directory_path() / "casemate-fuzz-XXXXXX").string();
    require(mkdtemp(path.data()) != nullptr, "a directory can be made");
    path_ = path;
    for (const char* name : {"first", "second"}) fs::create_directory(tree(name));
    std::ofstream(path_ / "canary") << kCanary;
    fs::permissions(path_ / "canary", fs::perms::owner_read);
  }
  ~Place() {
    open_up(path_);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  fs::path tree(const char* name) const { return path_ / name; }

  void check_outside() const {
    require(std::distance(fs::directory_iterator(path_), {}) == 3, "nothing is made beside a tree");
    struct stat status{};
    require(lstat((path_ / "canary").c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                (status.st_mode & 07777) == 0400 && status.st_nlink == 1 &&
                status.st_size == static_cast<off_t>(kCanary.size()),
            "what stands beside a tree is untouched");
  }

 private:
  fs::path path_;
};

// Whether it was an archive, whole.
bool unpack(const fs::path& tree, std::string_view bytes) {
  try {
    unpack_tree(tree, [&](std::span<char> wanted) {
      if (wanted.size() > bytes.size()) fail_with(EBADMSG);
      std::copy_n(bytes.data(), wanted.size(), wanted.data());
      bytes.remove_prefix(wanted.size());
    });
    return true;
  } catch (const OperationFailed& failed) {
    require(failed.failure.error > 0 && failed.failure.error < 4096, "a failure has an errno");
    return false;
  }
}

std::string archived(const fs::path& tree) {
  std::string bytes;
  archive_tree(tree, [&](std::string_view more) { bytes += more; });
  return bytes;
}

}  // namespace

void fuzz_archives(std::string_view bytes) {
  const Place place;
  const bool whole = unpack(place.tree("first"), bytes);
  place.check_outside();
  if (!whole) return;
  const std::string again = archived(place.tree("first"));
  require(unpack(place.tree("second"), again), "what was unpacked is kept and unpacked again");
  place.check_outside();
  require(archived(place.tree("second")) == again, "and is the same");
}

}  // namespace casemate::fuzz
