#include "casemate/guest/agent/image_root.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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
// Copies of one image, all together; the template has room for as many and its own.
constexpr int kMaxCopies = 4096;
constexpr off_t kMaxCopiedInAll = 8 << 20;
constexpr std::size_t kFewEntries = 50;
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

// What there is for an image, and taken of it.
class Budget {
 public:
  // Whether one more entry of so many bytes is copied; else it takes a view.
  bool copies(off_t bytes = 0, int entries = 1) {
    if (bytes > kMaxCopiedBytes || copies_ + entries > kMaxCopies ||
        bytes_ + bytes > kMaxCopiedInAll) {
      return false;
    }
    copies_ += entries;
    bytes_ += bytes;
    return true;
  }
  // False when there is none left.
  bool views() { return ++views_ <= kMaxViews; }

 private:
  int views_ = 0;
  int copies_ = 0;
  off_t bytes_ = 0;
};

bool is_left_out(const struct stat& status) {
  if (S_ISLNK(status.st_mode) || S_ISDIR(status.st_mode)) return false;
  return !S_ISREG(status.st_mode) || (status.st_mode & S_IROTH) == 0;
}

class ImageView {
 public:
  ImageView(int image, int root) : image_(image), root_(root) {}

  // False when it holds too much; then nothing of it is shown.
  template <std::size_t N>
  bool show_all(const std::string& directory, const std::string_view (&but)[N],
                std::string_view and_but) {
    const UniqueFd opened = open(directory);
    if (!opened) return true;
    std::vector<std::string> names = sys::list_directory_at(opened.get(), ".");
    std::erase_if(names,
                  [&](const std::string& name) { return is_one_of(but, name) || name == and_but; });
    // Few enough for a view each need not be looked at twice.
    if (names.size() > kFewEntries && !fits(opened.get(), names)) return false;
    for (const std::string& name : names) {
      show(opened.get(), name, directory.empty() ? name : directory + "/" + name);
    }
    return true;
  }

  // Hides what `show` leaves out of the directory and names of `but` that the root has not.
  template <std::size_t N>
  void hide(const std::string& directory, const std::string_view (&but)[N]) {
    const UniqueFd opened = open(directory);
    if (!opened) return;
    for (const std::string& name : sys::list_directory_at(opened.get(), ".")) {
      const auto status = sys::entry_in(opened.get(), name);
      if (!status || (!is_one_of(but, name) && !is_left_out(*status))) continue;
      const std::string path = directory + "/" + name;
      if (mknodat(root_, path.c_str(), S_IFCHR, makedev(0, 0)) < 0 && errno != EEXIST) {
        sys::throw_errno("hiding " + path + " of an image");
      }
    }
  }

  // Nothing where there is no such directory: the sandbox's own is as empty then.
  UniqueFd open(const std::string& directory) const {
    try {
      return sys::open_beneath(image_, directory.empty() ? "." : directory, O_RDONLY | O_DIRECTORY);
    } catch (const std::system_error& error) {
      const int number = error.code().value();
      if (number == ENOENT || number == ELOOP || number == ENOTDIR || number == EACCES) return {};
      throw;
    }
  }

 private:
  // What a small directory holds that all may list and search: files and links only, and few.
  // Absent for any other, which keeps its mode: a copy would open what it closes.
  struct Small {
    std::vector<std::string> names;
    off_t bytes = 0;
  };
  static std::optional<Small> small_directory(int directory) {
    constexpr mode_t kOpenToAll = S_IROTH | S_IXOTH;
    if ((sys::status_of(directory).st_mode & kOpenToAll) != kOpenToAll) return std::nullopt;
    Small small{.names = sys::list_directory_at(directory, ".")};
    if (small.names.size() > kMaxCopiedEntries) return std::nullopt;
    for (const std::string& name : small.names) {
      const auto status = sys::entry_in(directory, name);
      if (!status || S_ISDIR(status->st_mode)) return std::nullopt;
      small.bytes += status->st_size;
    }
    return small;
  }
  static bool is_copied(const std::optional<Small>& small, Budget& budget) {
    return small && budget.copies(small->bytes, static_cast<int>(small->names.size()) + 1);
  }

  // O_NONBLOCK: a FIFO may have taken its place. Nothing for what may not or cannot be opened.
  static UniqueFd open_entry(int directory, const std::string& name) {
    try {
      return sys::open_beneath(directory, name, O_RDONLY | O_NONBLOCK);
    } catch (const std::system_error& error) {
      const int number = error.code().value();
      if (number == ENOENT || number == ELOOP || number == EACCES || number == ENXIO) return {};
      throw;
    }
  }

  // Whether there is room for all of them, by the rules of `show`.
  bool fits(int directory, const std::vector<std::string>& names) const {
    Budget left = budget_;
    for (const std::string& name : names) {
      const auto status = sys::entry_in(directory, name);
      if (!status || is_left_out(*status)) continue;
      bool copied = false;
      if (S_ISDIR(status->st_mode)) {
        const UniqueFd opened = open_entry(directory, name);
        if (!opened) continue;
        copied = is_copied(small_directory(opened.get()), left);
      } else {
        copied = left.copies(S_ISLNK(status->st_mode) ? 0 : status->st_size);
      }
      if (!copied && (S_ISLNK(status->st_mode) || !left.views())) return false;
    }
    return true;
  }

  void show(int directory, const std::string& name, const std::string& path) {
    const auto status = sys::entry_in(directory, name);
    if (!status || is_left_out(*status)) return;
    if (S_ISLNK(status->st_mode)) {
      if (!budget_.copies()) refuse();
      return copy_link(directory, name, path);
    }
    const UniqueFd opened = open_entry(directory, name);
    if (!opened) return;
    const struct stat found = sys::status_of(opened.get());
    if (S_ISDIR(found.st_mode)) {
      sys::make_directory_at(root_, path.c_str(), 0755);
      const std::optional<Small> small = small_directory(opened.get());
      if (!is_copied(small, budget_)) return view(opened.get(), path);
      for (const std::string& inner : small->names) {
        const auto entry = sys::entry_in(opened.get(), inner);
        if (!entry || is_left_out(*entry)) continue;
        const std::string inner_path = path + "/" + inner;
        if (S_ISLNK(entry->st_mode)) {
          copy_link(opened.get(), inner, inner_path);
        } else if (const UniqueFd file = open_entry(opened.get(), inner)) {
          copy_file(file.get(), inner_path);
        }
      }
    } else if (!is_left_out(found) &&
               (!budget_.copies(found.st_size) || !copy_file(opened.get(), path))) {
      sys::write_file_at(root_, path.c_str(), "", 0444);
      view(opened.get(), path);
    }
  }

  // False when it has grown too large meanwhile.
  bool copy_file(int opened, const std::string& path) {
    const struct stat found = sys::status_of(opened);
    if (!S_ISREG(found.st_mode) || is_left_out(found)) return true;
    const std::optional<std::string> content =
        sys::read_at_most(opened, static_cast<std::uint64_t>(kMaxCopiedBytes));
    if (!content) return false;
    sys::write_file_at(root_, path.c_str(), *content, (found.st_mode & S_IXUSR) != 0 ? 0555 : 0444);
    return true;
  }

  [[noreturn]] static void refuse() {
    sys::throw_error(EOPNOTSUPP, "showing an image of too many directories");
  }

  void view(int opened, const std::string& path) {
    if (!budget_.views()) refuse();
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

  int image_;
  int root_;
  Budget budget_;
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

std::vector<std::string> show_image(int image, int root, std::string_view work_dir) {
  for (const char* name : {"etc", "home", "var"}) sys::make_directory_at(root, name, 0755);
  ImageView view(image, root);
  const std::string_view below = work_dir.substr(1);
  if (!view.show_all("", kTop, below.find('/') == below.npos ? below : "")) {
    sys::throw_error(EOPNOTSUPP, "showing an image of too many directories at its top");
  }
  std::vector<std::string> too_large;
  if (!view.show_all("etc", kEtc, "")) too_large.emplace_back("etc");
  if (!view.show_all("home", kHome, "")) too_large.emplace_back("home");
  if (!view.show_all("var", kVar, "")) too_large.emplace_back("var");
  return too_large;
}

void merge_image_directory(int image, int root, const std::string& name) {
  ImageView view(image, root);
  if (name == "etc") view.hide(name, kEtc);
  if (name == "home") view.hide(name, kHome);
  if (name == "var") view.hide(name, kVar);
  const UniqueFd own = sys::open_at(root, name.c_str(), O_RDONLY | O_DIRECTORY);
  const UniqueFd merged = sys::make_merged(own.get(), view.open(name).get());
  sys::attach(merged.get(), root, name.c_str());
}

}  // namespace casemate::guest
