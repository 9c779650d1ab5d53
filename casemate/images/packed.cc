#include "casemate/images/packed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/command.h"
#include "casemate/images/growth.h"
#include "casemate/images/store_directory.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/staged_file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

// What is made of an image changes with these.
constexpr std::string_view kForm = "squashfs zstd 1";
constexpr char kPart[] = "packed";
constexpr std::string_view kStoreIdentity = "sha256:";
// What the names of files begin with that were made of an image of the store, and of a directory.
constexpr std::string_view kOfStore = "image-";
constexpr std::string_view kOfDirectory = "directory-";
constexpr std::size_t kMaxEntries = 2000000;
constexpr std::size_t kShownLogBytes = 600;

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

// What a program said last in a file of its own.
std::string end_of(int log) {
  const auto size = static_cast<std::size_t>(sys::status_of(log).st_size);
  std::string text(std::min(size, kShownLogBytes), '\0');
  const ssize_t got = pread(log, text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  while (text.ends_with('\n')) text.pop_back();
  return escape_for_display(text, 2 * kShownLogBytes);
}

bool is_of_store(std::string_view identity) { return identity.starts_with(kStoreIdentity); }

std::string digest_of(std::string_view identity) {
  return sha256_hex(std::string(kForm) + std::string(identity));
}

std::string name_of(std::string_view kind, std::string_view digest) {
  return fmt::format("{}{}.squashfs", kind, digest);
}

// Whether it is there.
bool note_use(int directory, const std::string& name, std::chrono::seconds now) {
  const timespec time{.tv_sec = now.count(), .tv_nsec = 0};
  const timespec times[2] = {time, time};
  return utimensat(directory, name.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

PackedImages::PackedImages(PackedImagesOptions options) : options_(std::move(options)) {}

PackedImage PackedImages::hold(const HeldImage& image, const CallControl& control) const {
  try {
    const UniqueFd directory = open_part_of_store(options_.directory, kPart);
    const bool immutable = is_of_store(image.identity);
    const auto digest_now = [&] {
      return immutable ? digest_of(image.identity) : TreeDigest().of(image.root.get());
    };
    PackedImage packed{.path = "", .digest = digest_now()};
    const std::string name = name_of(immutable ? kOfStore : kOfDirectory, packed.digest);
    if (!note_use(directory.get(), name, options_.clocks().wall)) {
      sys::write_whole_file(directory.get(), name, 0444, [&](int file) {
        pack(image, directory.get(), file, control);
        // Changed meanwhile, it must not be found again under what it was before.
        if (digest_now() == packed.digest) return;
        throw SandboxUnavailable("the image's directory was changed while it was packed",
                                 "try again when nobody changes it");
      });
      collect_directories(directory.get(), name);
    }
    packed.path = fmt::format("{}/{}/{}", options_.directory, kPart, name);
    return packed;
  } catch (const std::system_error& error) {
    throw SandboxUnavailable(
        fmt::format("packing an image: {}", error.what()),
        error.code() == std::errc::no_space_on_device ? "make room where images are kept" : "");
  }
}

void PackedImages::pack(const HeldImage& image, int directory, int file,
                        const CallControl& control) const {
  ProgressStep step(options_.progress, "packing the image for virtual machines");
  const UniqueFd log(memfd_create("mksquashfs.log", MFD_CLOEXEC));
  if (!log) sys::throw_errno("making a log");
  const auto root = sys::path_of(image.root.get());
  if (!root) sys::throw_error(ENOENT, "packing an image that was removed");
  std::optional<Growth> growth;
  if (options_.progress) growth.emplace(file);
  int status = 0;
  try {
    status =
        run_command({.program = options_.mksquashfs,
                     // By its descriptor: it has no name before it is whole.
                     .words = {"mksquashfs", *root, fmt::format("/proc/self/fd/{}", kFileNumber),
                               "-noappend", "-no-progress", "-comp", "zstd", "-Xcompression-level",
                               "3", "-all-root", "-no-xattrs", "-no-exports"},
                     .directory = directory,
                     .log = log.get(),
                     .file = file,
                     .events = growth ? growth->descriptor() : -1,
                     .look = [&] { step.reach(growth->look()); },
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
    throw SandboxUnavailable(fmt::format("mksquashfs could not pack the image (exit {}): {}",
                                         status, end_of(log.get())));
  }
  if (growth) step.reach(growth->look());
  step.end();
}

void PackedImages::collect_directories(int directory, const std::string& but) const noexcept {
  try {
    std::vector<CollectableImage> found;
    for (const std::string& name : sys::list_directory_at(directory, ".")) {
      struct stat status{};
      if (!name.starts_with(kOfDirectory) || name == but ||
          fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) {
        continue;
      }
      found.push_back({.id = name,
                       .bytes = static_cast<std::uint64_t>(status.st_size),
                       .used = status.st_mtim.tv_sec});
    }
    collect(directory, found, options_.collection, options_.clocks(),
            [&](const auto& image) { return unlinkat(directory, image.id.c_str(), 0) == 0; });
  } catch (const std::exception&) {
    // The next that is packed tries again.
  }
}

bool is_packed(const std::string& store, std::string_view digest) {
  for (const std::string_view kind : {kOfStore, kOfDirectory}) {
    const std::string path = fmt::format("{}/{}/{}", store, kPart, name_of(kind, digest));
    if (access(path.c_str(), F_OK) == 0) return true;
  }
  return false;
}

void discard_packed(int store, std::string_view identity) {
  const std::string path = fmt::format("{}/{}", kPart, name_of(kOfStore, digest_of(identity)));
  if (unlinkat(store, path.c_str(), 0) < 0 && errno != ENOENT) {
    sys::throw_errno("removing a packed image");
  }
}

void sweep_packed(int store, const std::function<std::vector<std::string>()>& identities) {
  const UniqueFd directory(openat(store, kPart, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return;
  sys::claim_staging(directory.get());
  std::vector<std::string> left;
  for (std::string& name : sys::list_directory_at(directory.get(), ".")) {
    if (name.starts_with(kOfStore)) left.push_back(std::move(name));
  }
  if (left.empty()) return;
  for (const std::string& identity : identities()) {
    std::erase(left, name_of(kOfStore, digest_of(identity)));
  }
  for (const std::string& name : left) unlinkat(directory.get(), name.c_str(), 0);
}

}  // namespace casemate::images
