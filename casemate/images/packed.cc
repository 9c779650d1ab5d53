#include "casemate/images/packed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/command.h"
#include "casemate/images/store_directory.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

// What is made of an image changes with these.
constexpr std::string_view kForm = "squashfs zstd 1";
constexpr char kPart[] = "packed";
constexpr std::string_view kStoreIdentity = "sha256:";
constexpr std::size_t kMaxEntries = 2000000;
constexpr std::size_t kShownLogBytes = 600;
constexpr std::size_t kMaxLogBytes = 1 << 20;

// Every name below a directory with what would differ if its content did.
class TreeDigest {
 public:
  std::string of(int root) {
    digest_.update(kForm);
    add_directory(root, "");
    return digest_.finish_hex();
  }

 private:
  void add_directory(int directory, const std::string& path) {
    std::vector<std::string> names = sys::list_directory_at(directory, ".");
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (++entries_ > kMaxEntries) {
        throw SandboxUnavailable(
            fmt::format("an image of over {} entries is refused", kMaxEntries));
      }
      struct stat status{};
      if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
      const std::string below = path + "/" + name;
      digest_.update(fmt::format("{}:{} {} {} {} {}.{} {}.{}\n", below.size(), below,
                                 status.st_mode, status.st_size, status.st_ino,
                                 status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                                 status.st_ctim.tv_sec, status.st_ctim.tv_nsec));
      if (!S_ISDIR(status.st_mode)) continue;
      const UniqueFd opened(
          openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (opened) add_directory(opened.get(), below);
    }
  }

  Sha256 digest_;
  std::size_t entries_ = 0;
};

std::string end_of(const std::string& log) {
  const std::size_t from = log.size() > kShownLogBytes ? log.size() - kShownLogBytes : 0;
  std::string_view text = std::string_view(log).substr(from);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return escape_for_display(text, 2 * kShownLogBytes);
}

}  // namespace

PackedImages::PackedImages(PackedImagesOptions options) : options_(std::move(options)) {}

PackedImage PackedImages::hold(const HeldImage& image, const CallControl& control) const {
  try {
    const UniqueFd directory = open_part_of_store(options_.directory, kPart);
    const bool immutable = image.identity.starts_with(kStoreIdentity);
    const auto digest_now = [&] {
      return immutable ? sha256_hex(std::string(kForm) + image.identity)
                       : TreeDigest().of(image.root.get());
    };
    PackedImage packed{.path = "", .digest = digest_now()};
    const std::string name = packed.digest + ".squashfs";
    if (faccessat(directory.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
      pack(image, directory.get(), name, control);
      // Changed meanwhile, it must not be found again under what it was before.
      if (digest_now() != packed.digest) unlinkat(directory.get(), name.c_str(), 0);
    }
    packed.path = fmt::format("{}/{}/{}", options_.directory, kPart, name);
    if (access(packed.path.c_str(), R_OK) < 0) {
      throw SandboxUnavailable("the image's directory was changed while it was packed",
                               "try again when nobody changes it");
    }
    return packed;
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(
        fmt::format("packing an image: {}", error.what()),
        error.code() == std::errc::no_space_on_device ? "make room where images are kept" : "");
  }
}

void PackedImages::pack(const HeldImage& image, int directory, const std::string& name,
                        const CallControl& control) const {
  if (options_.progress) options_.progress("packing the image for virtual machines");
  const std::string part = fmt::format("new.{}", random_hex(8));
  const std::string log_name = part + ".log";
  const auto leave_nothing = [&] {
    unlinkat(directory, part.c_str(), 0);
    unlinkat(directory, log_name.c_str(), 0);
  };
  try {
    const UniqueFd log =
        sys::open_at(directory, log_name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0600);
    const auto root = sys::path_of(image.root.get());
    if (!root) sys::throw_error(ENOENT, "packing an image that was removed");
    int status = 0;
    try {
      status = run_command(
          {.program = options_.mksquashfs,
           .words = {"mksquashfs", *root, part, "-noappend", "-no-progress", "-comp", "zstd",
                     "-Xcompression-level", "3", "-all-root", "-no-xattrs", "-no-exports"},
           .directory = directory,
           .log = log.get(),
           .what = "an image was packed",
           .late_hint = "the next time goes on from nothing: give it longer"},
          control);
    } catch (const std::system_error& error) {
      if (error.code().value() != ENOENT) throw;
      throw SandboxImageNotSupported(
          fmt::format("an image is packed for a virtual machine by mksquashfs, and there is no "
                      "'{}' here",
                      escape_for_display(options_.mksquashfs)),
          "install it (Debian: apt install squashfs-tools)");
    }
    if (status != 0) {
      const std::string said =
          sys::read_file_if_there(directory, log_name.c_str(), kMaxLogBytes).value_or("");
      throw SandboxUnavailable(
          fmt::format("mksquashfs could not pack the image (exit {}): {}", status, end_of(said)));
    }
    if (fchmodat(directory, part.c_str(), 0444, 0) < 0 ||
        renameat(directory, part.c_str(), directory, name.c_str()) < 0) {
      sys::throw_errno("keeping a packed image");
    }
    unlinkat(directory, log_name.c_str(), 0);
  } catch (...) {
    leave_nothing();
    throw;
  }
}

}  // namespace casemate::images
