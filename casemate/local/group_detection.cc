#include "casemate/local/group_detection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/base/shell_word.h"
#include "casemate/sys/file.h"

namespace casemate::local {

std::vector<std::string_view> split_parts(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    if (!text.substr(0, end).empty()) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

namespace {

bool contains(const std::vector<std::string_view>& parts, std::string_view word) {
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

// mountinfo writes space, tab, newline and backslash as three octal digits.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 4], value, 8).ptr == &text[i + 4]) {
      result += static_cast<char>(value);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

// One mounted hierarchy, and where in it this process is.
struct Hierarchy {
  std::string mount;
  // The group that the mount shows as its root.
  std::string root;
  // Relative to the mount: "" or "/a/b".
  std::string own;
};

struct Hierarchies {
  // By controller.
  std::map<std::string, Hierarchy, std::less<>> version1;
  std::optional<Hierarchy> unified;
};

Hierarchies parse_mounts(std::string_view mountinfo) {
  Hierarchies found;
  for (const std::string_view line : split_parts(mountinfo, '\n')) {
    const std::size_t middle = line.find(" - ");
    if (middle == std::string_view::npos) continue;
    const auto before = split_parts(line.substr(0, middle), ' ');
    const auto after = split_parts(line.substr(middle + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    const Hierarchy hierarchy{unescape(before[4]), unescape(before[3]), ""};
    if (after[0] == "cgroup2" && !found.unified) found.unified = hierarchy;
    if (after[0] != "cgroup") continue;
    for (const std::string_view controller : split_parts(after[2], ',')) {
      found.version1.try_emplace(std::string(controller), hierarchy);
    }
  }
  return found;
}

// A group that the mount does not show ("/../x") gives its root.
std::string own_part(const Hierarchy& hierarchy, std::string_view group) {
  const std::string_view root = hierarchy.root == "/" ? "" : std::string_view(hierarchy.root);
  if (!group.starts_with(root) || group.find("..") != std::string_view::npos) return "";
  group.remove_prefix(root.size());
  return group.starts_with('/') && group != "/" ? std::string(group) : "";
}

// Lines "4:memory,pids:/group", of version 2 "0::/group".
void find_own(Hierarchies& hierarchies, std::string_view own_groups) {
  for (const std::string_view line : split_parts(own_groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view names = line.substr(first + 1, second - first - 1);
    const std::string_view group = line.substr(second + 1);
    if (names.empty() && hierarchies.unified) {
      hierarchies.unified->own = own_part(*hierarchies.unified, group);
    }
    for (const std::string_view name : split_parts(names, ',')) {
      const auto found = hierarchies.version1.find(name);
      if (found != hierarchies.version1.end()) found->second.own = own_part(found->second, group);
    }
  }
}

// From the root of the mount down to the process's own group.
std::vector<std::string> groups_above(const Hierarchy& hierarchy) {
  std::vector<std::string> list{hierarchy.mount};
  for (std::size_t end = 0; end < hierarchy.own.size();) {
    end = std::min(hierarchy.own.find('/', end + 1), hierarchy.own.size());
    list.push_back(hierarchy.mount + hierarchy.own.substr(0, end));
  }
  return list;
}

std::optional<std::string> writable_base(const Hierarchy& hierarchy, const LookAtGroup& look) {
  for (const std::string& group : groups_above(hierarchy)) {
    if (look(group).writable) return group;
  }
  return std::nullopt;
}

// The highest that can be written and hand controllers on, else the highest that can be written.
struct UnifiedBase {
  std::string group;
  GroupView view;
};
std::optional<UnifiedBase> unified_base(const Hierarchy& hierarchy, const LookAtGroup& look) {
  std::optional<UnifiedBase> second;
  for (const std::string& group : groups_above(hierarchy)) {
    const GroupView view = look(group);
    if (!view.writable) continue;
    if (!view.occupied) return UnifiedBase{group, view};
    if (!second) second = UnifiedBase{group, view};
  }
  return second;
}

bool may_write(const std::string& path) {
  return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

std::string read_or_empty(const std::string& path) {
  try {
    std::string text =
        sys::read_file_if_there(AT_FDCWD, path.c_str(), std::size_t{1} << 20).value_or("");
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  } catch (const std::system_error&) {
    return "";
  }
}

}  // namespace

GroupView look_at_group(const std::string& directory) {
  const std::string procs = directory + "/cgroup.procs";
  if (access(procs.c_str(), F_OK) != 0) return {.there = false};
  const std::string subtree = directory + "/cgroup.subtree_control";
  // Version 1 has no such file.
  if (access(subtree.c_str(), F_OK) != 0) return {.writable = may_write(directory)};
  const bool is_root = access((directory + "/cgroup.type").c_str(), F_OK) != 0;
  return {.writable = may_write(directory) && may_write(procs) && may_write(subtree),
          .occupied = !is_root && !read_or_empty(procs).empty(),
          .offered = read_or_empty(directory + "/cgroup.controllers")};
}

namespace {

constexpr std::string_view kWanted[] = {"memory", "pids", "cpu", "cpuacct"};

// What is mounted later over any of these mount points, the last first. It hides them wholly.
std::vector<std::string> covers_of(const std::vector<std::string>& mounts,
                                   std::string_view mountinfo) {
  std::vector<std::string> covers;
  std::vector<std::string_view> seen;
  for (const std::string_view line : split_parts(mountinfo, '\n')) {
    const auto fields = split_parts(line.substr(0, line.find(" - ")), ' ');
    if (fields.size() < 5) continue;
    const std::string point = unescape(fields[4]);
    const auto covered = [&](std::string_view mount) {
      return mount == point || mount.starts_with(point == "/" ? point : point + "/");
    };
    if (std::any_of(seen.begin(), seen.end(), covered)) covers.insert(covers.begin(), point);
    for (const std::string& mount : mounts) {
      if (mount == point) seen.push_back(mount);
    }
  }
  return covers;
}

// Nothing of it is mounted here, and the kernel has it: what this process is in says so.
std::string mount_command(std::string_view own_groups) {
  std::string directories;
  std::string mounts;
  bool unified = false;
  for (const std::string_view line : split_parts(own_groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view names = line.substr(first + 1, second - first - 1);
    unified |= names.empty();
    const auto parts = split_parts(names, ',');
    const bool wanted = std::any_of(std::begin(kWanted), std::end(kWanted),
                                    [&](std::string_view name) { return contains(parts, name); });
    if (!wanted) continue;
    directories += fmt::format(" /sys/fs/cgroup/{}", names);
    mounts += fmt::format(" && mount -t cgroup -o {0} none /sys/fs/cgroup/{0}", names);
  }
  if (!mounts.empty()) {
    return "mount -t tmpfs none /sys/fs/cgroup && mkdir" + directories + mounts;
  }
  return unified ? "mount -t cgroup2 none /sys/fs/cgroup" : "";
}

Remedy by_root(std::string_view what, std::string command) {
  return {.hint = fmt::format("{}; as root: {}", what, command), .command = std::move(command)};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

}  // namespace

Remedy remedy_for_groups(std::string_view mountinfo, std::string_view own_groups,
                         const LookAtGroup& look, uid_t user) {
  const DetectedGroups detected = parse_groups(mountinfo, own_groups, look);
  if (detected.missing.empty()) return {};
  Hierarchies hierarchies = parse_mounts(mountinfo);
  find_own(hierarchies, own_groups);
  std::vector<std::string> hidden;
  std::vector<std::string> closed;
  const auto sort = [&](const Hierarchy& hierarchy, bool is_writable) {
    auto& mounts = look(hierarchy.mount).there ? closed : hidden;
    if (is_writable || std::find(mounts.begin(), mounts.end(), hierarchy.mount) != mounts.end()) {
      return;
    }
    mounts.push_back(hierarchy.mount);
  };
  bool unified_wanted = false;
  for (const auto& [limit, why] : detected.missing) {
    const auto found = hierarchies.version1.find(to_string(limit));
    if (found != hierarchies.version1.end()) {
      sort(found->second, writable_base(found->second, look).has_value());
    } else {
      unified_wanted = true;
    }
  }
  if (unified_wanted && !hierarchies.unified) {
    std::string command = mount_command(own_groups);
    if (!hierarchies.version1.empty() || command.empty()) return {};
    return by_root("no control groups are mounted here", std::move(command));
  }
  const auto base = unified_wanted ? unified_base(*hierarchies.unified, look) : std::nullopt;
  if (unified_wanted) sort(*hierarchies.unified, base.has_value());
  if (!hidden.empty()) {
    const std::vector<std::string> covers = covers_of(hidden, mountinfo);
    if (covers.empty()) return {};
    return by_root("the control groups are hidden by what is mounted over them",
                   "umount" + joined(covers));
  }
  if (base && base->view.occupied) {
    const std::string others = base->group + "/casemate-others";
    const std::string command = fmt::format(
        "mkdir -p {0} && for p in $(cat {1}/cgroup.procs); do echo $p 2>/dev/null "
        ">{0}/cgroup.procs || :; done",
        shell_word(others), shell_word(base->group));
    return {.hint = "give its processes a group of theirs: " + command, .command = command};
  }
  if (closed.empty()) return {};
  if (user == 0) {
    std::string command;
    for (const std::string& mount : closed) {
      command += fmt::format("{}mount -o remount,bind,rw {}", command.empty() ? "" : " && ",
                             shell_word(mount));
    }
    return by_root("they can be read only", std::move(command));
  }
  return {.hint =
              "have whoever manages them give this user one (systemd: Delegate=yes; without it: "
              "\"As an ordinary user\" in docs/operations.md)",
          .command = ""};
}

namespace {

std::string covered(std::string_view mount, std::string_view controller) {
  return fmt::format("something is mounted over {}, where the control groups with {} are", mount,
                     controller);
}

std::string text_of(const char* file) {
  try {
    return sys::read_file_at(AT_FDCWD, file, 16 << 20);
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace

DetectedGroups parse_groups(std::string_view mountinfo, std::string_view own_groups,
                            const LookAtGroup& look) {
  Hierarchies hierarchies = parse_mounts(mountinfo);
  find_own(hierarchies, own_groups);
  const std::optional<UnifiedBase> unified =
      hierarchies.unified ? unified_base(*hierarchies.unified, look) : std::nullopt;
  DetectedGroups detected;
  const auto place = [&](std::string_view name,
                         std::optional<Limit> limit) -> std::optional<ControllerPlace> {
    const auto say = [&](std::string why) {
      if (limit) detected.missing.emplace(*limit, std::move(why));
      return std::nullopt;
    };
    if (const auto found = hierarchies.version1.find(name); found != hierarchies.version1.end()) {
      if (auto base = writable_base(found->second, look)) return ControllerPlace{*base, false};
      if (!look(found->second.mount).there) return say(covered(found->second.mount, name));
      return say(fmt::format("this user may not make control groups in {}{}", found->second.mount,
                             found->second.own));
    }
    if (!hierarchies.unified) {
      return say(fmt::format("there is no hierarchy of control groups with {} here", name));
    }
    if (!unified && !look(hierarchies.unified->mount).there) {
      return say(covered(hierarchies.unified->mount, name));
    }
    if (!unified) {
      return say(fmt::format("this user may not make control groups in {}{} or above it",
                             hierarchies.unified->mount, hierarchies.unified->own));
    }
    // Version 2 counts processor time in every group, with or without a controller.
    if (!limit) return ControllerPlace{unified->group, true};
    if (!contains(split_parts(unified->view.offered, ' '), name)) {
      return say(fmt::format("the control group {} does not offer {}", unified->group, name));
    }
    if (unified->view.occupied) {
      return say(
          fmt::format("the control group {} has processes of its own, so it hands {} to no group "
                      "below it; move them into a group of theirs",
                      unified->group, name));
    }
    return ControllerPlace{unified->group, true};
  };
  detected.layout = {.memory = place("memory", Limit::memory),
                     .pids = place("pids", Limit::pids),
                     .cpu = place("cpu", Limit::cpu),
                     .accounting = place("cpuacct", std::nullopt)};
  return detected;
}

DetectedGroups detect_groups() {
  return parse_groups(text_of("/proc/self/mountinfo"), text_of("/proc/self/cgroup"), look_at_group);
}

Remedy remedy_for_groups() {
  return remedy_for_groups(text_of("/proc/self/mountinfo"), text_of("/proc/self/cgroup"),
                           look_at_group, geteuid());
}

DetectedGroups no_groups() {
  const std::string why = "the host's options leave control groups out";
  return {.layout = {}, .missing = {{Limit::memory, why}, {Limit::cpu, why}, {Limit::pids, why}}};
}

}  // namespace casemate::local
