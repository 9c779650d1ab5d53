#include "apps/casemate/mcp_directories.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::app {
namespace {

struct OpenDirectory {
  sys::UniqueFd fd;
  // What was asked for; false: the nearest one above it that is there.
  bool is_itself = true;
};

// Empty for what can be no directory: others say so, with their own words.
std::optional<OpenDirectory> open_nearest(const std::filesystem::path& path) {
  std::error_code error;
  OpenDirectory found;
  for (auto at = std::filesystem::absolute(path, error).lexically_normal(); !error;
       at = at.parent_path()) {
    found.fd.reset(::open(at.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (found.fd) return found;
    if (errno != ENOENT || at == at.parent_path()) return std::nullopt;
    // A path with a slash behind it names itself first.
    if (at.has_filename()) found.is_itself = false;
  }
  return std::nullopt;
}

void check_overlap(const McpOptions& options) {
  const auto shared = open_nearest(*options.files);
  const auto out = open_nearest(*options.out_dir);
  if (!shared || !shared->is_itself || !out) return;
  if (!sys::is_within(out->fd.get(), shared->fd.get()) &&
      !(out->is_itself && sys::is_within(shared->fd.get(), out->fd.get()))) {
    return;
  }
  throw InvalidArgument(
      fmt::format("--out-dir \"{}\" and --files \"{}\" are the same or lie in one another, so that "
                  "a program's output would be shared with later programs as your own file",
                  escape_for_display(*options.out_dir), escape_for_display(*options.files)),
      "use two directories beside each other");
}

void check_file(const ServerFile& file, const std::string& directory, const char* option) {
  const auto shared = open_nearest(directory);
  if (!shared || !shared->is_itself) return;
  std::error_code unreadable;
  // Where its name stands, and where its bytes do.
  for (const auto& path : {std::filesystem::absolute(file.path, unreadable),
                           std::filesystem::canonical(file.path, unreadable)}) {
    const auto parent = open_nearest(path.parent_path());
    if (path.empty() || !parent || !sys::is_within(parent->fd.get(), shared->fd.get())) continue;
    throw InvalidArgument(
        fmt::format("{} \"{}\" lies in {} \"{}\", which programs are given or write to",
                    file.option, escape_for_display(file.path), option,
                    escape_for_display(directory)),
        "keep it in a directory that is not shared");
  }
}

}  // namespace

void check_directories(const McpOptions& options, const std::vector<ServerFile>& files) {
  if (options.files && options.out_dir && !options.unsafe_shared_store) check_overlap(options);
  for (const ServerFile& file : files) {
    if (options.files) check_file(file, *options.files, "--files");
    if (options.out_dir) check_file(file, *options.out_dir, "--out-dir");
  }
}

}  // namespace casemate::app
