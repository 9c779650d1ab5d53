#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/file.h"
#include "casemate/sys/staged_file.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/directory_root.h"
#include "casemate/transfer/sink.h"

namespace casemate {
namespace {

using SharedDirectory = std::shared_ptr<const sys::UniqueFd>;

// An unnamed file costs a descriptor until it has its name. Up to this many are cheap under the
// usual limit of 1,024; more go through temporary names, which cost none.
constexpr std::size_t kMaxUnnamed = 64;

std::string shown(std::string_view name) { return escape_for_display(name); }

[[noreturn]] void refuse(std::string_view name, const std::system_error& error) {
  switch (error.code().value()) {
    case ELOOP:
      throw SandboxLandingNotConfined(
          fmt::format("\"{}\" would land through a link at the destination; links are not followed",
                      shown(name)),
          "remove the link at the destination, or choose another name");
    case EEXIST:
      throw SandboxLandingExists(
          fmt::format("\"{}\" is already there at the destination", shown(name)),
          "choose another name, or let the sink overwrite");
    case EISDIR:
      throw SandboxLandingExists(
          fmt::format("\"{}\" is already there at the destination, as a directory", shown(name)),
          "choose another name");
    case ENOTDIR:
      throw SandboxLandingExists(
          fmt::format("\"{}\" needs a directory where the destination has a file", shown(name)),
          "choose another name");
    default:
      throw SandboxFileError(
          fmt::format("\"{}\" could not be saved: {}", shown(name), error.code().message()),
          error.code().value(), "see to the destination's disk and permissions");
  }
}

// Runs a step about `name` and turns what fails into a refusal.
template <typename Step>
auto about(std::string_view name, Step step) {
  try {
    return step();
  } catch (const std::system_error& error) {
    refuse(name, error);
  }
}

void check_names(std::span<const Artifact> artifacts) {
  NameSet names(NameComparison::collision_key);
  for (const Artifact& artifact : artifacts) {
    if (const auto fault = artifact_name_fault(artifact.name)) {
      if (fault->rule == ArtifactNameRule::relative ||
          fault->rule == ArtifactNameRule::no_parent_segment) {
        throw SandboxLandingNotConfined(fault->message, "use another name");
      }
      throw ArtifactNameRefused(*fault);
    }
    names.add(artifact.name);
  }
}

// The directories that a batch lands in, each opened once and, where missing, made. Until `keep`,
// destroying it removes what was made and is empty.
class LandingDirectories {
 public:
  explicit LandingDirectories(const sys::UniqueFd& root) : root_(root) {}
  LandingDirectories(const LandingDirectories&) = delete;
  LandingDirectories& operator=(const LandingDirectories&) = delete;
  ~LandingDirectories() {
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
      sys::remove_empty_directory(made->first->get(), made->second);
    }
  }

  // `path` is empty for the root, else a name's part before its last slash.
  SharedDirectory open(const std::string& path) {
    if (const auto known = opened_.find(path); known != opened_.end()) {
      return known->second;
    }
    SharedDirectory directory;
    if (path.empty()) {
      directory = std::make_shared<sys::UniqueFd>(
          sys::open_beneath(root_.get(), ".", O_PATH | O_DIRECTORY));
    } else {
      const std::size_t slash = path.rfind('/');
      const SharedDirectory parent =
          open(slash == std::string::npos ? std::string() : path.substr(0, slash));
      const std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
      if (sys::make_directory(parent->get(), name)) {
        made_.emplace_back(parent, name);
      }
      directory = std::make_shared<sys::UniqueFd>(
          sys::open_beneath(parent->get(), name, O_PATH | O_DIRECTORY));
    }
    claims_.push_back(sys::claim_staging(directory->get()));
    opened_.emplace(path, directory);
    return directory;
  }

  // Every directory that has a new name in it reaches the disk.
  void sync() const {
    for (const auto& [path, directory] : opened_) {
      sys::sync_directory(directory->get());
    }
  }

  void keep() noexcept { made_.clear(); }

 private:
  const sys::UniqueFd& root_;
  std::map<std::string, SharedDirectory> opened_;
  std::vector<sys::UniqueFd> claims_;
  std::vector<std::pair<SharedDirectory, std::string>> made_;  // in the order of making
};

struct Landing {
  SharedDirectory directory;
  std::string leaf;
};

// Opens the directory of `name` and refuses a destination that is taken, before a byte is written.
Landing prepare(LandingDirectories& directories, const std::string& name, Overwrite overwrite) {
  const std::size_t slash = name.rfind('/');
  Landing landing{directories.open(slash == std::string::npos ? "" : name.substr(0, slash)),
                  name.substr(slash == std::string::npos ? 0 : slash + 1)};
  if (const auto taken = sys::entry_in(landing.directory->get(), landing.leaf)) {
    if (S_ISDIR(taken->st_mode)) {
      throw std::system_error(EISDIR, std::generic_category());
    }
    if (overwrite == Overwrite::no) {
      throw std::system_error(EEXIST, std::generic_category());
    }
  }
  return landing;
}

std::string default_display(const Artifact& artifact) {
  return fmt::format("{} ({} byte{})", shown(artifact.name), artifact.content.size(),
                     artifact.content.size() == 1 ? "" : "s");
}

// Where the root is by now: it may have been renamed since it was opened.
std::filesystem::path path_now(const DirectoryRoot& root) {
  struct stat status{};
  if (fstat(root.held.get(), &status) == 0 && status.st_nlink == 0) {
    throw SandboxFileError("the destination's directory was removed", ENOENT,
                           "make it again, and run again");
  }
  try {
    const std::optional<std::string> path = sys::path_of(root.held.get());
    if (path && path->starts_with('/')) return *path;
  } catch (const std::system_error&) {
    // No /proc.
  }
  return root.path;
}

}  // namespace

FileSystemSink::FileSystemSink(std::shared_ptr<const DirectoryRoot> root,
                               FileSystemSinkOptions options)
    : root_(std::move(root)), options_(std::move(options)) {}

const std::filesystem::path& FileSystemSink::root() const { return root_->path; }

LandedArtifact FileSystemSink::deliver(const Artifact& artifact) {
  return deliver_all({&artifact, 1}).front();
}

std::vector<LandedArtifact> FileSystemSink::deliver_all(std::span<const Artifact> artifacts) {
  check_names(artifacts);
  const std::filesystem::path root = path_now(*root_);
  std::vector<LandedArtifact> landed;
  for (const Artifact& artifact : artifacts) {
    const auto& display = options_.display;
    landed.push_back({artifact.name, display ? display(artifact) : default_display(artifact),
                      (root / artifact.name).string(), artifact.content.size()});
  }

  const std::lock_guard lock(mutex_);
  const Overwrite overwrite = options_.overwrite;
  LandingDirectories directories(root_->held);
  std::vector<Landing> landings;
  for (const Artifact& artifact : artifacts) {
    landings.push_back(
        about(artifact.name, [&] { return prepare(directories, artifact.name, overwrite); }));
  }
  // Declared after the directories: what was staged goes first when all is taken back.
  std::vector<sys::StagedFile> staged;
  staged.reserve(artifacts.size());
  for (std::size_t i = 0; i < artifacts.size(); ++i) {
    about(artifacts[i].name, [&] {
      staged.emplace_back(landings[i].directory, artifacts.size() > kMaxUnnamed
                                                     ? sys::Staging::named
                                                     : sys::Staging::unnamed);
      staged[i].write(artifacts[i].content);
      staged[i].sync();
    });
  }
  for (std::size_t i = 0; i < artifacts.size(); ++i) {
    about(artifacts[i].name, [&] {
      if (overwrite == Overwrite::yes) {
        staged[i].replace(landings[i].leaf);
      } else {
        staged[i].publish(landings[i].leaf);
      }
    });
  }
  if (!artifacts.empty()) {
    about(artifacts.back().name, [&] { directories.sync(); });
  }
  for (sys::StagedFile& file : staged) {
    file.keep();
  }
  directories.keep();
  return landed;
}

std::unique_ptr<FileSystemSink> make_file_system_sink(const std::filesystem::path& root,
                                                      FileSystemSinkOptions options) {
  std::error_code error;
  std::filesystem::create_directories(root, error);
  std::error_code unknown;
  if (error && std::filesystem::is_symlink(root, unknown) &&
      !std::filesystem::exists(root, unknown)) {
    throw InvalidArgument(
        fmt::format("output directory \"{}\" is a link to nothing", shown(root.native())),
        "make the directory that it names, or name another");
  }
  // What is wrong with an existing root shows when it is opened.
  if (error && !std::filesystem::exists(root, unknown)) {
    throw InvalidArgument(fmt::format("output directory \"{}\" cannot be created: {}",
                                      shown(root.native()), error.message()),
                          "name a directory that this user may write to");
  }
  auto held = std::make_shared<const DirectoryRoot>(hold_root(root, "output directory"));
  return std::unique_ptr<FileSystemSink>(new FileSystemSink(std::move(held), std::move(options)));
}

}  // namespace casemate
