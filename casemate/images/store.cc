#include "casemate/images/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <mutex>
#include <system_error>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/answering.h"
#include "casemate/images/documents.h"
#include "casemate/images/packed.h"
#include "casemate/images/registry.h"
#include "casemate/images/source.h"
#include "casemate/images/store_directory.h"
#include "casemate/images/store_records.h"
#include "casemate/images/unpack.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

constexpr char kDownloadName[] = "download";
constexpr std::string_view kIdPrefix = "sha256:";

std::string hex_of(std::string_view id) { return std::string(id.substr(kIdPrefix.size())); }

// Images whose locks share a name wait for each other, which is rare.
std::string lock_name(std::string_view what, std::string_view hex) {
  return fmt::format("{}-{}.lock", what, hex.substr(0, 3));
}

// What the machine refuses is the store's failure.
template <typename Act>
auto as_store(Act&& act) {
  try {
    return act();
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    const bool full = number == ENOSPC || number == EDQUOT;
    throw SandboxUnavailable(
        fmt::format("the image store{}: {}", full ? " is full" : "", error.what()),
        full ? "make room: `casemate image rm` removes images, `casemate image rm --unused` all "
               "that no sandbox uses"
             : "");
  }
}

std::string absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) == nullptr ? path : std::string(resolved);
}

// The same image under the same text, wherever this process's current directory is.
std::string recorded_text(const ImageReference& reference) {
  switch (reference.form) {
    case ImageForm::oci:
      return fmt::format("oci:{}{}{}", absolute(reference.path), reference.tag.empty() ? "" : ":",
                         reference.tag);
    case ImageForm::docker_archive:
      return "docker-archive:" + absolute(reference.path);
    default:
      return reference.text;
  }
}

// A list that looks whether an image is in use holds its lock for an instant, which is no use of
// it.
bool try_lock_patiently(int file, LockKind kind) {
  constexpr int kAttempts = 10;
  for (int attempt = 1; !try_lock(file, kind); ++attempt) {
    if (attempt == kAttempts) return false;
    sys::poll_until({}, std::chrono::steady_clock::now() + std::chrono::milliseconds(2));
  }
  return true;
}

bool same_file(int a, int b) {
  const struct stat first = sys::status_of(a);
  const struct stat second = sys::status_of(b);
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

SandboxImageInvalid not_there(std::string_view name) {
  return SandboxImageInvalid(
      fmt::format("there is no image '{}' in the image store", escape_for_display(name)),
      "`casemate image ls` shows what is there, `casemate image import REF` brings one in");
}

HeldImage hold_directory(const ImageReference& reference, const CallControl& control) {
  wait_for_answer(reference.path, control);
  HeldImage held;
  try {
    held.root = sys::open_path(reference.path, O_RDONLY | O_DIRECTORY);
  } catch (const std::system_error& error) {
    throw SandboxImageInvalid(
        fmt::format("the image '{}' cannot be read: {}", escape_for_display(reference.text),
                    error.code().message()),
        "give a directory that holds a root file system, with /usr in it");
  }
  const std::string path = absolute(reference.path);
  if (path == "/") {
    throw SandboxImageInvalid(
        "the image 'dir:/' is refused: it is this machine, with everything "
        "that is in it",
        "use `host` for a read-only view of this machine's /usr");
  }
  const struct stat status = sys::status_of(held.root.get());
  held.identity = fmt::format("dir:{}:{}:{}", status.st_dev, status.st_ino, path);
  return held;
}

}  // namespace

class ImageStore::Impl {
 public:
  explicit Impl(ImageStoreOptions options) : options_(std::move(options)) {}

  HeldImage hold(const ImageReference& reference, const CallControl& control);
  void check(const ImageReference& reference, const CallControl& control);
  StoredImage import(const ImageReference& reference, const CallControl& control);
  std::vector<StoredImage> list();
  StoredImage remove(std::string_view name);
  std::vector<StoredImage> remove_unused();

 private:
  const StoreDirectory& directory();
  std::string import_id(const ImageReference& reference, const CallControl& control);
  std::string fetch(const ImageReference& reference, const CallControl& control);
  std::string import_source(ImageSource& source, const std::string& text,
                            const CallControl& control);
  std::unique_ptr<ImageSource> open_source(const ImageReference& reference,
                                           const ProgressSink& progress,
                                           const CallControl& control) const;
  std::optional<HeldImage> hold_stored(const std::string& id);
  std::optional<StoredImage> read(const std::string& hex);
  StoredImage read_or_refuse(const std::string& id);
  void add_use(StoredImage& image);
  UniqueFd open_root(const std::string& hex);
  std::string find(std::string_view name);
  bool discard(const std::string& id);
  void note_use(const std::string& hex) noexcept;
  void collect_unused(const std::string& but) noexcept;
  void sweep() noexcept;

  ImageStoreOptions options_;
  std::mutex mutex_;
  std::optional<StoreDirectory> directory_;
};

const StoreDirectory& ImageStore::Impl::directory() {
  const std::lock_guard lock(mutex_);
  if (!directory_) {
    directory_.emplace(options_.directory.empty() ? default_store_directory() : options_.directory);
  }
  return *directory_;
}

void ImageStore::Impl::sweep() noexcept {
  try {
    directory().sweep();
    sweep_packed(directory().root(), [&] {
      std::vector<std::string> identities;
      for (const std::string& hex : sys::list_directory_at(directory().images(), ".")) {
        identities.push_back(std::string(kIdPrefix) + hex);
      }
      return identities;
    });
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::warning, fmt::format("images: sweeping: {}", error.what()));
  }
}

HeldImage ImageStore::Impl::hold(const ImageReference& reference, const CallControl& control) {
  if (reference.form == ImageForm::host) {
    throw InvalidArgument("the image 'host' is this machine's and not kept in the image store");
  }
  if (reference.form == ImageForm::dir) return hold_directory(reference, control);
  // Between an import and its lock somebody may remove it; whoever does so for ever is obeyed.
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::optional<std::string> id;
    if (!reference.id.empty()) {
      id = find(reference.id);
    } else if (reference.form == ImageForm::registry) {
      id = read_reference(directory().references(), reference.text);
    }
    if (id) {
      if (auto held = hold_stored(*id)) return std::move(*held);
    }
    if (auto held = hold_stored(import_id(reference, control))) return std::move(*held);
  }
  throw SandboxUnavailable(fmt::format("the image '{}' is removed as often as it is imported",
                                       escape_for_display(reference.text)));
}

void ImageStore::Impl::check(const ImageReference& reference, const CallControl& control) {
  switch (reference.form) {
    case ImageForm::host:
      return;
    case ImageForm::dir:
      hold_directory(reference, control);
      return;
    case ImageForm::registry:
      if (!reference.id.empty()) import_id(reference, control);
      return;
    case ImageForm::oci:
    case ImageForm::docker_archive:
      open_source(reference, {}, control);
      return;
  }
}

// Absent when it is not here.
std::optional<HeldImage> ImageStore::Impl::hold_stored(const std::string& id) {
  const std::string hex = hex_of(id);
  const auto stored = read(hex);
  if (!stored) return std::nullopt;
  HeldImage held;
  held.root = open_root(hex);
  if (!held.root || !try_lock_patiently(held.root.get(), LockKind::shared)) return std::nullopt;
  // Whoever removed it before the lock was had removed it.
  const UniqueFd now = open_root(hex);
  if (!now || !same_file(now.get(), held.root.get())) return std::nullopt;
  note_use(hex);
  held.identity = id;
  held.environment = stored->environment;
  return held;
}

std::unique_ptr<ImageSource> ImageStore::Impl::open_source(const ImageReference& reference,
                                                           const ProgressSink& progress,
                                                           const CallControl& control) const {
  wait_for_answer(reference.path, control);
  if (reference.form == ImageForm::oci) return open_oci_layout(reference.path, reference.tag);
  return open_docker_archive(reference.path, options_.bounds, progress, control);
}

// Its id, once it is in the store.
std::string ImageStore::Impl::import_id(const ImageReference& reference,
                                        const CallControl& control) {
  if (!reference.id.empty()) {
    std::string id = find(reference.id);
    if (!read(hex_of(id))) throw not_there(id);
    return id;
  }
  if (reference.form == ImageForm::registry) return fetch(reference, control);
  const auto source = open_source(reference, options_.progress, control);
  return import_source(*source, recorded_text(reference), control);
}

std::string ImageStore::Impl::fetch(const ImageReference& reference, const CallControl& control) {
  const UniqueFd guard = directory().lock(lock_name("fetch", sha256_hex(reference.text)), control);
  const NewDirectory download(directory());
  fetch_from_registry(options_.skopeo, reference, download.get(), kDownloadName, options_.progress,
                      control);
  const auto path = sys::path_of(download.get());
  if (!path) throw SandboxUnavailable("the image's download was removed", "try again");
  const auto source = open_oci_layout(*path + "/" + kDownloadName, kDownloadTag);
  return import_source(*source, reference.text, control);
}

std::string ImageStore::Impl::import_source(ImageSource& source, const std::string& text,
                                            const CallControl& control) {
  const std::string hex = hex_of(source.id());
  if (!read(hex)) {
    const UniqueFd guard = directory().lock(lock_name("image", hex), control);
    // Another may have done it meanwhile.
    if (!read(hex)) {
      sweep();
      unpack_image(source, directory(), hex, options_.bounds, options_.clocks().wall.count(),
                   options_.progress, control);
      collect_unused(source.id());
    }
  }
  write_reference(directory().references(), text, source.id());
  return source.id();
}

StoredImage ImageStore::Impl::import(const ImageReference& reference, const CallControl& control) {
  if (reference.form == ImageForm::host || reference.form == ImageForm::dir) {
    throw InvalidArgument(
        fmt::format("the image '{}' is used where it is and cannot be imported",
                    escape_for_display(reference.text)),
        "give it to `casemate run --image`; oci:PATH, docker-archive:PATH and registry references "
        "are imported");
  }
  const std::string id = import_id(reference, control);
  note_use(hex_of(id));
  return read_or_refuse(id);
}

// Absent when it is not here.
std::optional<StoredImage> ImageStore::Impl::read(const std::string& hex) {
  const UniqueFd entry(
      openat(directory().images(), hex.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entry) return std::nullopt;
  auto image = read_image_record(entry.get());
  if (image) image->used = sys::status_of(entry.get()).st_mtim.tv_sec;
  return image;
}

// What others make of it.
void ImageStore::Impl::add_use(StoredImage& image) {
  image.references = references_to(directory().references(), image.id);
  const UniqueFd root = open_root(hex_of(image.id));
  image.in_use = root && !try_lock(root.get(), LockKind::exclusive);
}

// Empty when it is not here.
UniqueFd ImageStore::Impl::open_root(const std::string& hex) {
  const std::string path = fmt::format("{}/{}", hex, kImageRootName);
  return UniqueFd(
      openat(directory().images(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

StoredImage ImageStore::Impl::read_or_refuse(const std::string& id) {
  auto image = read(hex_of(id));
  if (!image) throw not_there(id);
  add_use(*image);
  return std::move(*image);
}

std::vector<StoredImage> ImageStore::Impl::list() {
  sweep();
  std::vector<StoredImage> images;
  for (const std::string& hex : sys::list_directory_at(directory().images(), ".")) {
    auto image = read(hex);
    if (!image) continue;
    add_use(*image);
    images.push_back(std::move(*image));
  }
  std::ranges::sort(images, {}, &StoredImage::id);
  return images;
}

// The id of what `name` names.
std::string ImageStore::Impl::find(std::string_view name) {
  std::string_view digits = name;
  if (digits.starts_with(kIdPrefix)) digits.remove_prefix(kIdPrefix.size());
  if (digits.size() >= kMinIdDigits &&
      digits.find_first_not_of("0123456789abcdef") == digits.npos) {
    std::vector<std::string> found;
    for (const std::string& hex : sys::list_directory_at(directory().images(), ".")) {
      if (hex.starts_with(digits)) found.push_back(hex);
    }
    if (found.size() == 1) return fmt::format("{}{}", kIdPrefix, found.front());
    if (found.size() > 1) {
      std::ranges::sort(found);
      std::string ids;
      for (const std::string& hex : found) {
        ids += fmt::format("{}{}{}", ids.empty() ? "" : ", ", kIdPrefix, hex);
      }
      throw InvalidArgument(
          fmt::format("the ids of {} images begin with '{}': {}", found.size(), digits, ids),
          "give more of the id");
    }
  }
  if (name.starts_with(kIdPrefix)) throw not_there(name);
  const ImageReference reference = parse_image_reference(name);
  const auto id = read_reference(directory().references(), recorded_text(reference));
  if (!id) throw not_there(name);
  return *id;
}

// Whether it was free to go.
bool ImageStore::Impl::discard(const std::string& id) {
  const std::string hex = hex_of(id);
  const UniqueFd root = open_root(hex);
  if (root && !try_lock_patiently(root.get(), LockKind::exclusive)) return false;
  remove_references_to(directory().references(), id);
  directory().discard_image(hex);
  discard_packed(directory().root(), id);
  return true;
}

// Its time is kept where it costs one call, in the image's own directory, whose entries never
// change. Where it cannot be written the image counts as used when it came.
void ImageStore::Impl::note_use(const std::string& hex) noexcept {
  const timespec now{.tv_sec = options_.clocks().wall.count(), .tv_nsec = 0};
  const timespec times[2] = {now, now};
  utimensat(directory_->images(), hex.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

void ImageStore::Impl::collect_unused(const std::string& but) noexcept {
  try {
    std::vector<CollectableImage> images;
    for (const std::string& hex : sys::list_directory_at(directory().images(), ".")) {
      const auto image = read(hex);
      if (image) images.push_back({.id = image->id, .bytes = image->bytes, .used = image->used});
    }
    collect(directory().root(), images, options_.collection, options_.clocks(),
            [&](const CollectableImage& image) {
              if (image.id == but || !discard(image.id)) return false;
              write_log(
                  options_.log, LogLevel::info,
                  fmt::format("images: removed {}, which nothing ran from of late", image.id));
              return true;
            });
  } catch (const std::exception& error) {
    write_log(options_.log, LogLevel::warning,
              fmt::format("images: removing what is unused: {}", error.what()));
  }
}

StoredImage ImageStore::Impl::remove(std::string_view name) {
  sweep();
  StoredImage image = read_or_refuse(find(name));
  if (!discard(image.id)) {
    throw SandboxBusy(fmt::format("the image {} is in use by a sandbox", image.id),
                      "end it first: `casemate ls` and `casemate rm ID`");
  }
  return image;
}

std::vector<StoredImage> ImageStore::Impl::remove_unused() {
  std::vector<StoredImage> removed;
  for (StoredImage& image : list()) {
    if (discard(image.id)) removed.push_back(std::move(image));
  }
  return removed;
}

std::string default_store_directory() {
  if (geteuid() == 0) return "/var/lib/casemate";
  const char* data = getenv("XDG_DATA_HOME");
  if (data != nullptr && data[0] == '/') return std::string(data) + "/casemate";
  const char* home = getenv("HOME");
  if (home == nullptr || home[0] != '/') {
    throw SandboxUnavailable("there is no place for images: HOME is not set",
                             "set HOME, XDG_DATA_HOME or ImageStoreOptions::directory");
  }
  return std::string(home) + "/.local/share/casemate";
}

ImageStore::ImageStore(ImageStoreOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ImageStore::~ImageStore() = default;

HeldImage ImageStore::hold(const ImageReference& reference, const CallControl& control) {
  return as_store([&] { return impl_->hold(reference, control); });
}
void ImageStore::check(const ImageReference& reference, const CallControl& control) {
  as_store([&] { impl_->check(reference, control); });
}
StoredImage ImageStore::import(const ImageReference& reference, const CallControl& control) {
  return as_store([&] { return impl_->import(reference, control); });
}
std::vector<StoredImage> ImageStore::list() {
  return as_store([&] { return impl_->list(); });
}
StoredImage ImageStore::remove(std::string_view name) {
  return as_store([&] { return impl_->remove(name); });
}
std::vector<StoredImage> ImageStore::remove_unused() {
  return as_store([&] { return impl_->remove_unused(); });
}

}  // namespace casemate::images
