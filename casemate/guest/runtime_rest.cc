#include "casemate/guest/runtime_rest.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <vector>

#include "casemate/sys/cgroup.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr std::size_t kMaxMountsBytes = 16 << 20;
constexpr std::size_t kMaxRecordBytes = 4 << 20;

// Mount points of the hierarchies of control groups, in the text of /proc/self/mountinfo.
std::vector<std::string> hierarchies(std::string_view mounts) {
  std::vector<std::string> points;
  while (!mounts.empty()) {
    std::string_view line = mounts.substr(0, mounts.find('\n'));
    mounts.remove_prefix(std::min(line.size() + 1, mounts.size()));
    if (line.find(" - cgroup") == line.npos) continue;
    for (int field = 1; field < 5; ++field) {
      line.remove_prefix(std::min(line.find(' ') + 1, line.size()));
    }
    points.emplace_back(line.substr(0, line.find(' ')));
  }
  return points;
}

bool is_hierarchy(const std::string& path) {
  struct statfs status{};
  if (statfs(path.c_str(), &status) < 0) return false;
  return status.f_type == CGROUP2_SUPER_MAGIC || status.f_type == CGROUP_SUPER_MAGIC;
}

// Groups that a record names and that are called as the sandbox, as runc calls its own where it was
// told no name. The record is a runtime's, in a directory that nobody else writes to.
std::vector<std::string> groups_in(std::string_view record, const std::string& id) {
  std::vector<std::string> groups;
  const std::string name = "/" + id + "\"";
  for (std::size_t at = record.find(name); at != record.npos; at = record.find(name, at + 1)) {
    const std::size_t quote = record.rfind('"', at);
    if (quote == record.npos || record[quote + 1] != '/') continue;
    groups.emplace_back(record.substr(quote + 1, at + name.size() - quote - 2));
  }
  return groups;
}

// Where it makes that group: beside the one that it is in, as the caller is who started it. Before
// the record says so it may have been killed.
std::vector<std::string> groups_beside_own(std::string_view mounts, const std::string& id) {
  const auto own = sys::read_file_if_there(AT_FDCWD, "/proc/self/cgroup", 64 * 1024);
  const std::size_t line = own ? own->find("0::/") : std::string::npos;
  if (line == std::string::npos || (line > 0 && (*own)[line - 1] != '\n')) return {};
  const std::string path = own->substr(line + 3, own->find('\n', line) - line - 3);
  const std::string parent = path.substr(0, path.rfind('/'));
  std::vector<std::string> groups;
  for (const std::string& point : hierarchies(mounts)) {
    groups.push_back(point + parent + "/" + id);
  }
  return groups;
}

// Files only: a runtime has nothing else there.
bool remove_record(const std::string& state_directory, const std::string& id) {
  const std::string path = state_directory + "/" + id;
  const sys::UniqueFd directory(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return errno == ENOENT;
  for (const std::string& name : sys::list_directory_at(directory.get(), ".")) {
    unlinkat(directory.get(), name.c_str(), 0);
  }
  return rmdir(path.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::string runtime_group(std::string_view id) { return "/casemate-runtime-" + std::string(id); }

bool remove_runtime_rest(const std::string& state_directory, const std::string& id) noexcept {
  try {
    const std::string mounts = sys::read_file_at(AT_FDCWD, "/proc/self/mountinfo", kMaxMountsBytes);
    std::vector<std::string> groups = groups_beside_own(mounts, id);
    for (const std::string& point : hierarchies(mounts)) {
      groups.push_back(point + runtime_group(id));
    }
    const auto record = sys::read_file_if_there(
        AT_FDCWD, (state_directory + "/" + id + "/state.json").c_str(), kMaxRecordBytes);
    if (record) {
      for (const std::string& group : groups_in(*record, id)) {
        if (is_hierarchy(group)) groups.push_back(group);
      }
    }
    bool gone = true;
    for (const std::string& group : groups) {
      if (sys::remove_control_group(group) != 0) gone = false;
    }
    // Last: it is what names the groups.
    return remove_record(state_directory, id) && gone;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace casemate::guest
