#include "casemate/backends/docker/engine_remedy.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

namespace casemate::docker {
namespace {

// Where Docker Engine listens as its packages start it.
bool is_usual(std::string_view path) {
  return path == "/run/docker.sock" || path == "/var/run/docker.sock";
}

local::Remedy by_root(std::string_view what, const std::string& command, std::string_view then) {
  return {.hint = fmt::format("{}; as root: {}{}", what, command, then), .command = command};
}

}  // namespace

Installed is_engine_installed() noexcept {
  const bool found =
      access("/usr/bin/dockerd", X_OK) == 0 || access("/usr/sbin/dockerd", X_OK) == 0;
  return found ? Installed::yes : Installed::no;
}

local::Remedy remedy_for_socket(const std::string& path, int error, const std::string& user,
                                Installed installed) {
  struct stat status{};
  if (error == EACCES && !user.empty() && stat(path.c_str(), &status) == 0 &&
      (status.st_mode & S_IWGRP) != 0 && status.st_gid != 0) {
    group entry{};
    group* found = nullptr;
    std::vector<char> room(64 * 1024);
    getgrgid_r(status.st_gid, &entry, room.data(), room.size(), &found);
    if (found == nullptr) return {};
    return by_root("its socket belongs to a group that this user is not in",
                   fmt::format("usermod -aG {} {}", found->gr_name, user),
                   "; then log in again. Who is in it is as good as root on this machine");
  }
  const bool nobody_there = error == ENOENT || error == ECONNREFUSED;
  if (!nobody_there || !is_usual(path)) return {};
  if (installed == Installed::no) {
    local::Remedy remedy = local::install_package("docker.io");
    remedy.hint = "no Docker Engine is installed; " + remedy.hint;
    return remedy;
  }
  if (access("/run/systemd/system", F_OK) == 0) {
    return by_root("the engine is installed and does not run", "systemctl start docker", "");
  }
  // A container that runs one inside, or a machine of another init.
  if (access("/etc/init.d/docker", X_OK) == 0) {
    return by_root("the engine is installed and does not run", "service docker start", "");
  }
  return {};
}

}  // namespace casemate::docker
