#include "casemate/images/source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/reference.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

// Indexes inside an index.
constexpr int kMaxIndexDepth = 3;
constexpr std::size_t kMaxMemberLinks = 8;

[[noreturn]] void refuse(const std::string& path, std::string_view why, std::string hint) {
  throw SandboxImageInvalid(fmt::format("the image at '{}' {}", escape_for_display(path), why),
                            std::move(hint));
}

// A regular file, links followed. Never waits, whatever the path leads to.
UniqueFd open_regular(int directory, const std::string& name, const std::string& shown) {
  UniqueFd file(openat(directory, name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    const std::error_code error(errno, std::generic_category());
    refuse(shown,
           fmt::format("cannot be read: {}{}", name == shown ? "" : escape_for_display(name) + ": ",
                       error.message()),
           "give the path of an image that `skopeo copy` or `docker save` wrote");
  }
  if (!S_ISREG(sys::status_of(file.get()).st_mode)) {
    refuse(shown,
           fmt::format("cannot be read: {} is no regular file",
                       name == shown ? "it" : escape_for_display(name)),
           "give the path of an image that `skopeo copy` or `docker save` wrote");
  }
  return file;
}

std::string read_document(int file, const std::string& shown, std::string_view what) {
  auto text = sys::read_at_most(file, kMaxDocumentBytes);
  if (!text) {
    refuse(shown, fmt::format("has {} of more than {} bytes", what, kMaxDocumentBytes),
           "export the image anew");
  }
  return std::move(*text);
}

class OciLayout final : public ImageSource {
 public:
  OciLayout(const std::string& path, const std::string& tag)
      : path_(path), directory_(open_layout(path)) {
    const Platform platform = this_platform();
    Descriptor found = choose_manifest(read_file("index.json"), tag, platform);
    for (int depth = 0; is_index(found); ++depth) {
      if (depth == kMaxIndexDepth) refuse(path_, "nests its indexes too deep", "export it anew");
      found = choose_manifest(read_blob(found), "", platform);
    }
    manifest_ = parse_manifest(read_blob(found));
    config_ = parse_config(read_blob(manifest_.config), platform);
    id_ = manifest_.config.digest;
    if (config_.diff_ids.size() != manifest_.layers.size()) {
      refuse(path_,
             fmt::format("has {} layers, and {} in its config", manifest_.layers.size(),
                         config_.diff_ids.size()),
             "export it anew");
    }
  }

  SourceLayer open_layer(std::size_t number) override {
    const Descriptor& blob = manifest_.layers.at(number);
    UniqueFd file = open_regular(directory_.get(), name_of(blob), path_);
    // Before it is read: a file with holes is longer than any disk.
    const auto size = static_cast<std::uint64_t>(sys::status_of(file.get()).st_size);
    if (size != blob.size) {
      refuse(path_,
             fmt::format("has another content than its digest says: {} is {} bytes, not {}",
                         blob.digest, size, blob.size),
             "export it anew");
    }
    return {.file = std::move(file), .blob = blob, .diff_id = config_.diff_ids.at(number)};
  }

 private:
  static UniqueFd open_layout(const std::string& path) {
    try {
      return sys::open_path(path, O_PATH | O_DIRECTORY);
    } catch (const std::system_error& error) {
      refuse(
          path, fmt::format("cannot be read: {}", error.code().message()),
          "give the directory of an OCI layout, as `skopeo copy docker://... oci:PATH` makes it");
    }
  }

  static std::string name_of(const Descriptor& blob) {
    return "blobs/sha256/" + blob.digest.substr(blob.digest.find(':') + 1);
  }

  std::string read_file(const std::string& name) const {
    return read_document(open_regular(directory_.get(), name, path_).get(), path_, name);
  }

  std::string read_blob(const Descriptor& blob) const {
    std::string text = read_file(name_of(blob));
    if (text.size() != blob.size || "sha256:" + sha256_hex(text) != blob.digest) {
      refuse(path_, fmt::format("has another content than its digest says: {}", blob.digest),
             "export it anew");
    }
    return text;
  }

  std::string path_;
  UniqueFd directory_;
  Manifest manifest_;
};

// `docker save` before version 25 has a directory a layer, in which a layer that is there already
// is a link; since then an OCI layout with the same `manifest.json` on top.
class DockerArchive final : public ImageSource {
 public:
  DockerArchive(const std::string& path, const TarBounds& bounds, const ProgressSink& progress,
                const CallControl& control)
      : path_(path), file_(open_regular(AT_FDCWD, path, path)) {
    const std::uint64_t size = size_of(file_.get());
    // A plain one takes no time.
    std::optional<ProgressStep> step;
    if (is_compressed(file_.get())) step.emplace(progress, "looking through the archive", size);
    // Each of two passes is half of it.
    const auto listed = read_member("manifest.json", bounds, control, [&](std::uint64_t position) {
      if (step) step->reach(position / 2);
    });
    if (!listed) {
      refuse(path_, "has no manifest.json",
             "give a file that `docker save` or `podman save` wrote");
    }
    manifest_ = parse_archive_manifest(*listed);
    const auto config = read_member(manifest_.config, bounds, control, [&](std::uint64_t position) {
      if (step) step->reach(size / 2 + position / 2);
    });
    if (step) step->end();
    if (!config) refuse(path_, "has no config", "save it anew");
    id_ = "sha256:" + sha256_hex(*config);
    // What docker and podman write is called by its digest, with .json behind it or a directory
    // before. A name that says no digest says nothing that could be wrong.
    const std::string said =
        "sha256:" + std::filesystem::path(manifest_.config).filename().replace_extension().native();
    if (is_digest(said) && said != id_) {
      refuse(path_, "has another config than its digest says", "save it anew");
    }
    config_ = parse_config(*config, this_platform());
    if (config_.diff_ids.size() != manifest_.layers.size()) {
      refuse(path_,
             fmt::format("has {} layers, and {} in its config", manifest_.layers.size(),
                         config_.diff_ids.size()),
             "save it anew");
    }
  }

  // The order of members is not that of layers, and in an archive nothing can be picked out.
  void stage(int directory, const TarBounds& bounds, const ProgressSink& progress,
             const CallControl& control) override {
    std::map<std::string, std::size_t> numbers;
    for (const std::string& layer : manifest_.layers) numbers.emplace(target_of(layer), 0);
    rewind();
    ProgressStep step(progress, "reading the archive", size_of(file_.get()));
    TarStream stream(file_.get(), bounds, control, Sums::unwanted,
                     [&](std::uint64_t position) { step.reach(position); });
    staged_.clear();
    while (const auto entry = stream.next()) {
      if (entry->kind != EntryKind::file) continue;
      const auto wanted = numbers.find(entry->name);
      if (wanted == numbers.end() || staged_.contains(entry->name)) continue;
      const std::string name = std::to_string(staged_.size());
      const UniqueFd copy =
          sys::open_at(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
      while (const auto block = stream.read()) {
        sys::write_all_at(copy.get(), block->bytes, block->offset, "writing an image's layer");
      }
      staged_.emplace(entry->name, name);
    }
    step.end();
    directory_ = sys::open_at(directory, ".", O_PATH | O_DIRECTORY);
  }

  SourceLayer open_layer(std::size_t number) override {
    const std::string& name = manifest_.layers.at(number);
    const auto found = staged_.find(target_of(name));
    if (found == staged_.end()) {
      refuse(path_, fmt::format("has no layer '{}'", escape_for_display(name)), "save it anew");
    }
    return {.file = open_regular(directory_.get(), found->second, path_),
            .blob = std::nullopt,
            .diff_id = config_.diff_ids.at(number)};
  }

 private:
  static std::uint64_t size_of(int file) {
    return static_cast<std::uint64_t>(sys::status_of(file).st_size);
  }

  void rewind() const {
    if (lseek(file_.get(), 0, SEEK_SET) < 0) sys::throw_errno("reading an archive");
  }

  // Links among members are noted on the way.
  std::optional<std::string> read_member(const std::string& name, const TarBounds& bounds,
                                         const CallControl& control,
                                         std::function<void(std::uint64_t)> on_position) {
    try {
      return look_for_member(name, bounds, control, std::move(on_position));
    } catch (const SandboxImageInvalid& refused) {
      // What reads an archive does not know which.
      throw SandboxImageInvalid(
          fmt::format("'{}': {}", escape_for_display(path_), refused.message()), refused.hint());
    }
  }

  std::optional<std::string> look_for_member(const std::string& name, const TarBounds& bounds,
                                             const CallControl& control,
                                             std::function<void(std::uint64_t)> on_position) {
    rewind();
    TarStream stream(file_.get(), bounds, control, Sums::unwanted, std::move(on_position));
    std::optional<std::string> text;
    while (const auto entry = stream.next()) {
      if (entry->kind == EntryKind::symbolic_link || entry->kind == EntryKind::hard_link) {
        links_.insert_or_assign(entry->name, *entry);
      }
      if (entry->kind != EntryKind::file || entry->name != name || text) continue;
      if (entry->size > kMaxDocumentBytes) {
        throw SandboxImageInvalid(
            fmt::format("a document of {} bytes; {} are accepted", entry->size, kMaxDocumentBytes),
            "save it anew");
      }
      text.emplace();
      while (const auto block = stream.read()) {
        text->resize(block->offset, '\0');
        text->append(block->bytes.begin(), block->bytes.end());
      }
    }
    return text;
  }

  // The member that a name leads to. A link's target is another member's name and nothing else.
  std::string target_of(std::string name) const {
    for (std::size_t step = 0; step < kMaxMemberLinks; ++step) {
      const auto link = links_.find(name);
      if (link == links_.end()) return name;
      const TarEntry& entry = link->second;
      name = entry.kind == EntryKind::hard_link
                 ? entry.target
                 : (std::filesystem::path(name).parent_path() / entry.target)
                       .lexically_normal()
                       .native();
    }
    refuse(path_, "leads from one link to the next", "save it anew");
  }

  std::string path_;
  UniqueFd file_;
  ArchiveManifest manifest_;
  std::map<std::string, TarEntry> links_;
  UniqueFd directory_;
  // Member, and the name of its copy.
  std::map<std::string, std::string> staged_;
};

}  // namespace

std::unique_ptr<ImageSource> open_oci_layout(const std::string& path, const std::string& tag) {
  return std::make_unique<OciLayout>(path, tag);
}

std::unique_ptr<ImageSource> open_docker_archive(const std::string& path, const TarBounds& bounds,
                                                 const ProgressSink& progress,
                                                 const CallControl& control) {
  return std::make_unique<DockerArchive>(path, bounds, progress, control);
}

}  // namespace casemate::images
