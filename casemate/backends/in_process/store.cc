#include "casemate/backends/in_process/store.h"

#include <fmt/format.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"

namespace casemate::in_process {
namespace {

// The seam's bound on one listing.
constexpr std::size_t kMaxEntries = 100'000;

std::string absolute(std::string_view path) {
  if (!path.starts_with('/')) {
    throw InvalidArgument(fmt::format("'{}' is not an absolute path", escape_for_display(path)),
                          "begin it with '/'");
  }
  return normalise_guest_path(path);
}

// "/a/b" for "/a/b/c"; "/" for "/a".
std::string_view directory_of(std::string_view normalised) {
  const std::size_t slash = normalised.rfind('/');
  return slash == 0 ? "/" : normalised.substr(0, slash);
}

// What every path below the directory begins with.
std::string prefix_of(const std::string& directory) {
  return directory == "/" ? directory : directory + "/";
}

[[noreturn]] void fail(std::string_view operation, int error_number, std::string_view why) {
  throw SandboxFileError(fmt::format("{} failed: {}", operation, why), error_number);
}

}  // namespace

Store::Store() {
  for (const char* directory : {"/", "/tmp", "/home", "/home/user"}) nodes_[directory] = {};
}

std::optional<SandboxEntry> Store::lookup(const std::string& absolute_path) const {
  const auto found = nodes_.find(absolute_path);
  if (found == nodes_.end()) return std::nullopt;
  SandboxEntry entry{.path = absolute_path, .kind = found->second.kind, .size_bytes = {}};
  if (entry.kind == EntryKind::file) entry.size_bytes = found->second.content.size();
  return entry;
}

void Store::make_directories_above(std::string_view absolute_path) {
  for (std::string_view directory = directory_of(absolute_path);;
       directory = directory_of(directory)) {
    nodes_.try_emplace(std::string(directory));
    if (directory == "/") return;
  }
}

void Store::put_locked(std::string_view absolute_path, Node node) {
  const std::string path = absolute(absolute_path);
  if (path == "/") throw InvalidArgument("'/' is always a directory", "name something below it");
  make_directories_above(path);
  nodes_.insert_or_assign(path, std::move(node));
}

void Store::write_file(std::string_view path, std::span<const char> content,
                       std::string_view working_directory) {
  const std::lock_guard lock(mutex_);
  const std::string where = confine_guest_write_path(
      [this](const std::string& each) { return lookup(each); }, path, working_directory);
  put_locked(where, {.kind = EntryKind::file, .content = {content.begin(), content.end()}});
}

std::optional<SandboxEntry> Store::stat_file(std::string_view path,
                                             std::string_view working_directory) const {
  const std::lock_guard lock(mutex_);
  const std::string where = confine_guest_path(path, working_directory);
  refuse_symlinked_parents([this](const std::string& each) { return lookup(each); }, where,
                           working_directory);
  std::optional<SandboxEntry> entry = lookup(where);
  if (entry) entry->path = guest_path_relative_to(where, working_directory).value();
  return entry;
}

std::string Store::read_file(std::string_view path, std::string_view working_directory,
                             std::uint64_t max_bytes) const {
  const std::lock_guard lock(mutex_);
  const std::string where = confine_guest_path(path, working_directory);
  refuse_symlinked_parents([this](const std::string& each) { return lookup(each); }, where,
                           working_directory);
  const auto found = nodes_.find(where);
  if (found == nodes_.end()) fail("reading a file", ENOENT, "it does not exist");
  switch (found->second.kind) {
    case EntryKind::symlink:
      fail("reading a file", ELOOP, "it is a link");
    case EntryKind::directory:
      fail("reading a file", EISDIR, "it is a directory");
    case EntryKind::other:
      fail("reading a file", EINVAL, "it is no regular file");
    case EntryKind::file:
      break;
  }
  if (found->second.content.size() > max_bytes) {
    throw SandboxTransferCapExceeded(
        fmt::format("a file of {} bytes is over the {} that may be read",
                    found->second.content.size(), max_bytes),
        "write a smaller file, or raise the cap");
  }
  return found->second.content;
}

void Store::remove(std::string_view path, std::string_view working_directory, Recursive recursive) {
  const std::lock_guard lock(mutex_);
  const std::string where = confine_guest_path(path, working_directory);
  if (where == normalise_guest_path(working_directory)) {
    throw SandboxPathRefused("the working directory itself is not removed",
                             "name something below it");
  }
  refuse_symlinked_parents([this](const std::string& each) { return lookup(each); }, where,
                           working_directory);
  const auto found = nodes_.find(where);
  if (found == nodes_.end()) return;
  if (found->second.kind == EntryKind::directory) {
    if (recursive == Recursive::no) fail("removing", EISDIR, "it is a directory");
    std::erase_if(nodes_,
                  [&](const auto& node) { return node.first.starts_with(prefix_of(where)); });
  }
  nodes_.erase(where);
}

std::vector<SandboxEntry> Store::list_dir(std::string_view path,
                                          std::string_view working_directory) const {
  const std::lock_guard lock(mutex_);
  const std::string where = confine_guest_path(path, working_directory);
  refuse_symlinked_parents([this](const std::string& each) { return lookup(each); }, where,
                           working_directory, IncludeSelf::yes);
  if (!nodes_.contains(where)) fail("listing a directory", ENOENT, "it does not exist");
  const std::string prefix = prefix_of(where);
  std::vector<SandboxEntry> entries;
  for (auto node = nodes_.upper_bound(prefix);
       node != nodes_.end() && node->first.starts_with(prefix); ++node) {
    if (node->first.find('/', prefix.size()) != std::string::npos) continue;
    if (entries.size() == kMaxEntries) {
      throw SandboxTransferCapExceeded(
          fmt::format("a directory has more than the {} entries that are listed", kMaxEntries),
          "spread them over several directories");
    }
    entries.push_back(*lookup(node->first));
    entries.back().path = guest_path_relative_to(node->first, working_directory).value();
  }
  return entries;
}

std::string Store::program_directory(std::string_view path,
                                     std::string_view working_directory) const {
  const std::lock_guard lock(mutex_);
  const std::string where = normalise_guest_path(
      path.starts_with('/') ? std::string(path) : fmt::format("{}/{}", working_directory, path));
  refuse_symlinked_parents([this](const std::string& each) { return lookup(each); }, where, "/",
                           IncludeSelf::yes);
  if (!nodes_.contains(where))
    fail("entering the program's directory", ENOENT, "it does not exist");
  return where;
}

void Store::put(std::string_view absolute_path, Seed seed) {
  if (auto* content = std::get_if<std::string>(&seed)) {
    put_file(absolute_path, std::move(*content));
    return;
  }
  const EntryKind kind = std::get<EntryKind>(seed);
  if (kind == EntryKind::file) {
    throw InvalidArgument("a file was put without bytes", "give its bytes in place of the kind");
  }
  const std::lock_guard lock(mutex_);
  put_locked(absolute_path, {.kind = kind, .content = {}});
}

void Store::put_file(std::string_view absolute_path, std::string bytes) {
  const std::lock_guard lock(mutex_);
  put_locked(absolute_path, {.kind = EntryKind::file, .content = std::move(bytes)});
}

void Store::erase(std::string_view absolute_path) {
  const std::lock_guard lock(mutex_);
  const std::string path = absolute(absolute_path);
  if (path == "/") throw InvalidArgument("'/' is not erased", "name something below it");
  std::erase_if(nodes_, [&](const auto& node) {
    return node.first == path || node.first.starts_with(prefix_of(path));
  });
}

bool Store::contains(std::string_view absolute_path) const {
  const std::lock_guard lock(mutex_);
  return nodes_.contains(absolute(absolute_path));
}

std::optional<std::string> Store::bytes(std::string_view absolute_path) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(absolute(absolute_path));
  if (found == nodes_.end() || found->second.kind != EntryKind::file) return std::nullopt;
  return found->second.content;
}

std::map<std::string, std::string> Store::contents() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> files;
  for (const auto& [path, node] : nodes_) {
    if (node.kind == EntryKind::file) files.emplace(path, node.content);
  }
  return files;
}

std::map<std::string, std::string> Store::files() const {
  std::map<std::string, std::string> texts = contents();
  for (const auto& [path, text] : texts) {
    if (!is_valid_utf8(text)) {
      throw InvalidArgument(fmt::format("'{}' is not text in UTF-8", escape_for_display(path)),
                            "look at `contents`, which is bytes");
    }
  }
  return texts;
}

struct Store::Saved {
  std::map<std::string, Node, std::less<>> nodes;
};

std::shared_ptr<const Store::Saved> Store::save() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<const Saved>(Saved{nodes_});
}

void Store::load(const Saved& saved) {
  const std::lock_guard lock(mutex_);
  nodes_ = saved.nodes;
}

std::vector<std::string> Store::paths_of(EntryKind kind) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, node] : nodes_) {
    if (node.kind == kind) paths.push_back(path);
  }
  return paths;
}

}  // namespace casemate::in_process
