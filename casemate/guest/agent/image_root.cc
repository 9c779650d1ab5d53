#include "casemate/guest/agent/image_root.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <system_error>
#include <vector>

#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

constexpr sys::MountAttributes kReadOnly{.read_only = true};
constexpr int kMaxViews = 256;
// What a directory may hold to be copied rather than shown.
constexpr std::size_t kMaxCopiedEntries = 16;
constexpr off_t kMaxCopiedBytes = 512 * 1024;

constexpr std::string_view kTop[] = {"proc",     "sys",    "dev", "tmp",  "run",
                                     "casemate", ".quota", "etc", "home", "var"};
constexpr std::string_view kEtc[] = {"passwd",        "group",      "hosts",      "hostname",
                                     "nsswitch.conf", "machine-id", "resolv.conf"};
constexpr std::string_view kHome[] = {"user"};
constexpr std::string_view kVar[] = {"tmp", "run"};

template <std::size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class ImageView {
 public:
  ImageView(int image, int root) : image_(image), root_(root) {}

  template <std::size_t N>
  void show_all(const std::string& directory, const std::string_view (&but)[N],
                std::string_view and_but) {
    UniqueFd opened;
    try {
      opened =
          sys::open_beneath(image_, directory.empty() ? "." : directory, O_RDONLY | O_DIRECTORY);
    } catch (const std::system_error& error) {
      // Without such a directory the sandbox's own is empty.
      const int number = error.code().value();
      if (number == ENOENT || number == ELOOP || number == ENOTDIR || number == EACCES) return;
      throw;
    }
    for (const std::string& name : sys::list_directory_at(opened.get(), ".")) {
      if (is_one_of(but, name) || name == and_but) continue;
      show(opened.get(), name, directory.empty() ? name : directory + "/" + name);
    }
  }

 private:
  void show(int directory, const std::string& name, const std::string& path) {
    const auto status = sys::entry_in(directory, name);
    if (!status) return;
    if (S_ISLNK(status->st_mode)) return copy_link(directory, name, path);
    if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode)) return;
    UniqueFd opened;
    try {
      // O_NONBLOCK: a FIFO may have taken its place.
      opened = sys::open_beneath(directory, name, O_RDONLY | O_NONBLOCK);
    } catch (const std::system_error& error) {
      const int number = error.code().value();
      if (number == ENOENT || number == ELOOP || number == EACCES || number == ENXIO) return;
      throw;
    }
    const struct stat found = sys::status_of(opened.get());
    if (S_ISDIR(found.st_mode)) {
      sys::make_directory_at(root_, path.c_str(), 0755);
      if (is_small(opened.get())) {
        for (const std::string& inner : sys::list_directory_at(opened.get(), ".")) {
          show(opened.get(), inner, path + "/" + inner);
        }
      } else {
        view(opened.get(), path);
      }
    } else if (S_ISREG(found.st_mode) && (found.st_mode & S_IROTH) != 0) {
      const std::optional<std::string> content =
          found.st_size <= kMaxCopiedBytes
              ? sys::read_at_most(opened.get(), static_cast<std::uint64_t>(kMaxCopiedBytes))
              : std::nullopt;
      const unsigned mode = (found.st_mode & S_IXUSR) != 0 ? 0555 : 0444;
      sys::write_file_at(root_, path.c_str(), content.value_or(""), mode);
      if (!content) view(opened.get(), path);
    }
  }

  void view(int opened, const std::string& path) {
    if (++views_ > kMaxViews) sys::throw_error(E2BIG, "showing an image of too many directories");
    const UniqueFd tree = sys::clone_tree(opened);
    sys::restrict_tree(tree.get(), kReadOnly);
    sys::attach(tree.get(), root_, path.c_str());
  }

  void copy_link(int directory, const std::string& name, const std::string& path) {
    char target[PATH_MAX];
    const ssize_t length = readlinkat(directory, name.c_str(), target, sizeof target - 1);
    if (length < 0 && (errno == ENOENT || errno == EINVAL)) return;
    if (length < 0) sys::throw_errno("reading the link " + path);
    target[length] = '\0';
    if (symlinkat(target, root_, path.c_str()) < 0) sys::throw_errno("linking " + path);
  }

  // Only files and links, and few.
  static bool is_small(int directory) {
    const std::vector<std::string> names = sys::list_directory_at(directory, ".");
    if (names.size() > kMaxCopiedEntries) return false;
    off_t bytes = 0;
    for (const std::string& name : names) {
      const auto status = sys::entry_in(directory, name);
      if (!status || S_ISDIR(status->st_mode)) return false;
      bytes += status->st_size;
    }
    return bytes <= kMaxCopiedBytes;
  }

  int image_;
  int root_;
  int views_ = 0;
};

}  // namespace

UniqueFd reopen_image(int image) {
  const auto path = sys::path_of(image);
  if (!path) sys::throw_error(ENOENT, "opening an image that was removed");
  UniqueFd opened = sys::open_path(*path, O_RDONLY | O_DIRECTORY);
  const struct stat given = sys::status_of(image);
  const struct stat found = sys::status_of(opened.get());
  if (given.st_dev != found.st_dev || given.st_ino != found.st_ino) {
    sys::throw_error(ESTALE, "opening an image");
  }
  return opened;
}

void show_image(int image, int root, std::string_view work_dir) {
  for (const char* name : {"etc", "home", "var"}) sys::make_directory_at(root, name, 0755);
  ImageView view(image, root);
  const std::string_view below = work_dir.substr(1);
  view.show_all("", kTop, below.find('/') == below.npos ? below : "");
  view.show_all("etc", kEtc, "");
  view.show_all("home", kHome, "");
  view.show_all("var", kVar, "");
}

}  // namespace casemate::guest
