#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/directory_root.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/read_regular.h"
#include "casemate/transfer/sink.h"

namespace casemate {

namespace {

// Walks a tree depth first, under its bounds.
class Listing {
 public:
  explicit Listing(const ListingLimits& limits) : limits_(limits) {}

  // `prefix` is "" for the root, else the directory's name with a trailing slash.
  void walk(int directory, const std::string& path, const std::string& prefix, std::size_t depth) {
    // Kept, so that the directories below are opened from this very one and not by their paths.
    const sys::UniqueFd held = sys::open_beneath(directory, path, O_PATH | O_DIRECTORY);
    const std::size_t left = limits_.max_entries - seen_;
    // One more than may be, so that a directory of exactly the bound is told from a longer one.
    const std::vector<sys::DirectoryEntry> entries =
        sys::read_directory(sys::open_beneath(held.get(), ".", O_RDONLY | O_DIRECTORY), left + 1);
    if (entries.size() > left) {
      throw SandboxTransferCapExceeded(
          fmt::format("the shared directory has more than {} entries, the most that are listed",
                      limits_.max_entries),
          "share a directory that holds less");
    }
    seen_ += entries.size();
    for (const sys::DirectoryEntry& entry : entries) {
      std::string name = prefix + entry.name;
      if (artifact_name_fault(name)) {
        continue;  // can never be asked for, nor can what lies below it
      }
      if (entry.type == DT_REG) {
        names.push_back(std::move(name));
      } else if (entry.type == DT_DIR) {
        descend(held.get(), entry.name, name, depth + 1);
      }
    }
  }

  std::vector<std::string> names;

 private:
  void descend(int directory, const std::string& leaf, const std::string& name, std::size_t depth) {
    if (depth > limits_.max_depth) {
      throw SandboxTransferCapExceeded(
          fmt::format("the shared directory is more than {} directories deep, the most that are "
                      "listed",
                      limits_.max_depth),
          "share a directory that is less deep");
    }
    try {
      walk(directory, leaf, name + "/", depth);
    } catch (const std::system_error& error) {
      const int number = error.code().value();
      // Removed, or swapped for something else, since its parent was read.
      if (number != ENOENT && number != ELOOP && number != ENOTDIR) {
        throw file_refusal(name, number);
      }
    }
  }

  const ListingLimits& limits_;
  std::size_t seen_ = 0;
};

}  // namespace

DirectoryFileStore::DirectoryFileStore(const std::filesystem::path& root, ListingLimits limits)
    : root_(std::make_shared<const DirectoryRoot>(hold_root(root, "shared directory"))),
      limits_(limits) {}

const std::filesystem::path& DirectoryFileStore::root() const { return root_->path; }

std::vector<std::string> DirectoryFileStore::list() const {
  Listing listing(limits_);
  try {
    listing.walk(root_->held.get(), ".", "", 0);
  } catch (const std::system_error& error) {
    throw file_refusal(".", error.code().value());
  }
  std::ranges::sort(listing.names);
  return std::move(listing.names);
}

std::optional<std::string> DirectoryFileStore::read(std::string_view name,
                                                    std::uint64_t max_bytes) const {
  validate_artifact_name(name);
  try {
    const sys::UniqueFd fd = sys::open_beneath(root_->held.get(), name, kOpenToLook);
    return read_regular(fd, name, max_bytes);
  } catch (const std::system_error& error) {
    switch (error.code().value()) {
      case ENOENT:
      case ENOTDIR:  // "a/b" where a is a file: there is no such name
        return std::nullopt;
      case ELOOP:
        throw SandboxPathRefused(
            fmt::format("file \"{}\" is, or lies behind, a link; links are not followed",
                        escape_for_display(name)),
            "share a directory that holds the file itself");
      default:
        throw file_refusal(name, error.code().value());
    }
  }
}

}  // namespace casemate
