// Layers of a stranger's, unpacked: nothing is touched beside the tree, and what is in it is plain.
// An odd first byte unpacks the same bytes as a second layer too.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/tar_stream.h"
#include "casemate/images/tree_writer.h"
#include "casemate/sys/unique_fd.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace casemate::images;

constexpr TarBounds kBounds{.max_bytes = 256 * 1024, .max_entries = 64};
constexpr std::string_view kCanary = "untouched";

// A directory of this process's, with the tree in it and a file beside the tree.
class Place {
 public:
  Place() {
    std::string path = (fs::temp_directory_path() / "casemate-fuzz-XXXXXX").string();
    require(mkdtemp(path.data()) != nullptr, "a directory can be made");
    path_ = path;
    fs::create_directory(root());
    std::ofstream(path_ / "canary") << kCanary;
    fs::permissions(path_ / "canary", fs::perms::owner_read);
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  fs::path root() const { return path_ / "root"; }

  void check_outside() const {
    require(std::distance(fs::directory_iterator(path_), {}) == 2, "nothing is made beside a tree");
    struct stat status{};
    require(lstat((path_ / "canary").c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                (status.st_mode & 07777) == 0400 && status.st_nlink == 1 &&
                status.st_size == static_cast<off_t>(kCanary.size()),
            "what stands beside a tree is untouched");
  }

  void check_inside(bool refused) const {
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      struct stat status{};
      require(lstat(entry.path().c_str(), &status) == 0, "an entry can be looked at");
      const mode_t mode = status.st_mode & 07777;
      require(S_ISLNK(status.st_mode) || S_ISDIR(status.st_mode) || S_ISREG(status.st_mode),
              "a tree has directories, files and links");
      require(S_ISLNK(status.st_mode) || (mode & ~0755U) == 0, "nothing in a tree is for others");
      // Of one that was refused a file may be half written; nobody sees it.
      require(refused || S_ISLNK(status.st_mode) || mode == 0755 ||
                  (S_ISREG(status.st_mode) && mode == 0644),
              "modes are plain");
      require(status.st_uid == geteuid(), "everything is this user's");
    }
  }

 private:
  fs::path path_;
};

sys::UniqueFd file_of(std::string_view bytes) {
  sys::UniqueFd file(memfd_create("layer", MFD_CLOEXEC));
  require(write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
              lseek(file.get(), 0, SEEK_SET) == 0,
          "a file holds the layer");
  return file;
}

}  // namespace

void fuzz_image_layers(std::string_view bytes) {
  Input input(bytes);
  const bool twice = input.byte() % 2 == 1;
  const Place place;
  const sys::UniqueFd root(open(place.root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TreeWriter writer(root.get());
  bool refused = false;
  try {
    for (int layer = 0; layer < (twice ? 2 : 1); ++layer) {
      const sys::UniqueFd file = file_of(input.rest());
      TarStream stream(file.get(), kBounds, {});
      writer.add_layer(stream);
      require(writer.bytes() <= 2 * kBounds.max_bytes && writer.files() <= 2 * kBounds.max_entries,
              "what is written is within the bounds");
    }
  } catch (const SandboxImageInvalid& refusal) {
    refused = true;
    require(is_valid_utf8(refusal.message()) && refusal.message().size() < 8192,
            "a refusal is text, and bounded");
  }
  place.check_outside();
  place.check_inside(refused);
}

}  // namespace casemate::fuzz
