#include "apps/casemate/config_owner.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/file.h"

namespace casemate::app {

namespace {

constexpr mode_t kPermissions = 07777;
constexpr std::size_t kWholePath = 4096;

bool is_own(uid_t owner) { return owner == 0 || owner == geteuid(); }

// Asked only where a group may write: a lookup of users is slow where they are kept elsewhere.
bool is_private_group(gid_t group, uid_t owner) {
  const passwd* user = getpwuid(owner);
  if (user == nullptr) return false;
  const std::string name = user->pw_name;
  if (user->pw_gid != group) return false;
  const struct group* found = getgrgid(group);
  if (found == nullptr || name != found->gr_name) return false;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

// What is wrong with it, and the command that mends it. Empty: nothing.
struct Fault {
  std::string why;
  std::string command;
};

std::optional<Fault> fault_of(const struct stat& status) {
  if (!is_own(status.st_uid)) {
    return Fault{fmt::format("belongs to user {}", status.st_uid),
                 fmt::format("chown {}", geteuid())};
  }
  const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if (sticky) return std::nullopt;
  if ((status.st_mode & S_IWOTH) != 0) {
    return Fault{"is writable for everybody", "chmod go-w"};
  }
  if ((status.st_mode & S_IWGRP) != 0 && !is_private_group(status.st_gid, status.st_uid)) {
    return Fault{fmt::format("is writable for group {}", status.st_gid), "chmod g-w"};
  }
  return std::nullopt;
}

void refuse_faulty(const struct stat& status, const std::string& path, const std::string& shown) {
  const auto fault = fault_of(status);
  if (!fault) return;
  const std::string name = escape_for_display(path, kWholePath);
  throw ConfigInvalid(
      fmt::format("'{}' is not read: {} {} (owner {}, mode {:04o}), and who may change it runs "
                  "commands in your name",
                  escape_for_display(shown, kWholePath),
                  S_ISDIR(status.st_mode) ? fmt::format("'{}', which it is in,", name) : "it",
                  fault->why, status.st_uid, status.st_mode & kPermissions),
      fmt::format("it has to be yours or root's and writable for nobody else: {} '{}'",
                  fault->command, name));
}

}  // namespace

void refuse_what_others_may_write(int file, const std::string& path,
                                  const std::optional<std::string>& home) {
  struct stat status{};
  struct statfs system{};
  if (::fstat(file, &status) != 0 || ::fstatfs(file, &system) != 0) {
    throw ConfigInvalid(fmt::format("'{}' cannot be read: {}", escape_for_display(path, kWholePath),
                                    std::strerror(errno)),
                        "name a TOML file with --config or CASEMATE_CONFIG");
  }
  if (S_ISCHR(status.st_mode) || system.f_type == PIPEFS_MAGIC) return;
  const auto place = sys::path_of(file);
  refuse_faulty(status, place.value_or(path), path);
  // What was removed already cannot be replaced.
  if (!place) return;
  std::error_code ignored;
  const auto own = home ? std::filesystem::canonical(*home, ignored) : std::filesystem::path();
  for (auto directory = std::filesystem::path(*place).parent_path(); !directory.empty();
       directory = directory.parent_path()) {
    if (::stat(directory.c_str(), &status) == 0) refuse_faulty(status, directory.native(), path);
    if (directory == own || !directory.has_relative_path()) return;
  }
}

}  // namespace casemate::app
