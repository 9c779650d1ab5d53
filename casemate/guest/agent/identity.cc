#include "casemate/guest/agent/identity.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/guest/agent/rootfs.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// Far above the ids of people and containers.
constexpr IdRange kHighIds{0x70000000U, 0x02000000U};
// From so many on, only a part of an extent is used.
constexpr std::uint32_t kManyIds = 1024;

bool contains(const IdRange& outer, const IdRange& inner) {
  return inner.first >= outer.first && inner.count <= outer.count &&
         inner.first - outer.first <= outer.count - inner.count;
}

// The next number of a text, behind blanks.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool may(unsigned capability) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[2]{};
  if (syscall(SYS_capget, &header, sets) < 0) return false;
  return (sets[capability / 32].effective >> (capability % 32) & 1U) != 0;
}

bool may_give_ids() { return may(CAP_SETUID) && may(CAP_SETGID); }

std::string read_proc(const char* path) { return sys::read_file_at(AT_FDCWD, path, 64 * 1024); }

void write_proc(pid_t process, const char* file, const std::string& text) {
  const std::string path = "/proc/" + std::to_string(process) + "/" + file;
  sys::write_control_file_at(AT_FDCWD, path.c_str(), text);
}

// The caller's own id, then a range.
std::string map_of(unsigned own, const IdRange& range) {
  return "0 " + std::to_string(own) + " 1\n1 " + std::to_string(range.first) + " " +
         std::to_string(range.count) + "\n";
}

// What is wrong with one of newuidmap and newgidmap; empty when it did its work.
std::string run_map_tool(const char* tool, pid_t process, unsigned own, const IdRange& range) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) sys::throw_errno("making a pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const std::string target = std::to_string(process);
  const std::string own_text = std::to_string(own);
  const std::string first = std::to_string(range.first);
  const std::string count = std::to_string(range.count);
  const pid_t pid = fork();
  if (pid < 0) sys::throw_errno("cloning a process");
  if (pid == 0) {
    dup2(writing.get(), 2);
    for (const char* folder : {"/usr/bin/", "/usr/local/bin/", "/bin/", "/usr/sbin/"}) {
      execl((std::string(folder) + tool).c_str(), tool, target.c_str(), "0", own_text.c_str(), "1",
            "1", first.c_str(), count.c_str(), nullptr);
    }
    _exit(127);
  }
  writing.reset();
  std::string said;
  char bytes[256];
  ssize_t got = 0;
  while ((got = read(reading.get(), bytes, sizeof bytes)) > 0 && said.size() < 256) {
    said.append(bytes, static_cast<std::size_t>(got));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return std::string(tool) + " is missing";
  said = said.substr(0, said.find('\n'));
  if (said.starts_with(tool)) return said;
  return std::string(tool) + " failed" + (said.empty() ? "" : ": " + said);
}

// What the process outside of the new user namespace found, sent as it lies in memory.
struct MapReport {
  // More ids than one were given.
  bool mapped;
  // Some were given, so that the map cannot be written another time.
  bool half;
  char text[300];
};

// Gives `process`, root of a new user namespace, more ids than the caller's own.
MapReport give_ids(pid_t process, const std::optional<SubordinateIds>& subordinate) {
  MapReport report{};
  const auto fail = [&](const std::string& why) {
    std::snprintf(report.text, sizeof report.text, "%s", why.c_str());
    return report;
  };
  try {
    if (may_give_ids()) {
      const auto users = spare_ids(read_proc("/proc/self/uid_map"));
      const auto groups = spare_ids(read_proc("/proc/self/gid_map"));
      if (!users || !groups) return fail("there are no more here");
      write_proc(process, "gid_map", map_of(getegid(), *groups));
      report.half = true;
      write_proc(process, "uid_map", map_of(geteuid(), *users));
    } else {
      if (!subordinate) return fail("no range in /etc/subuid and /etc/subgid");
      std::string why = run_map_tool("newgidmap", process, getegid(), subordinate->groups);
      if (!why.empty()) return fail(why);
      report.half = true;
      why = run_map_tool("newuidmap", process, geteuid(), subordinate->users);
      if (!why.empty()) return fail(why);
    }
    report.mapped = true;
    return report;
  } catch (const std::system_error& error) {
    return fail(error.what());
  }
}

// Makes the caller root of a new user namespace. Returns why it has one id only; empty: it has
// more.
std::string enter_user_namespace(const std::optional<SubordinateIds>& subordinate) {
  const unsigned user = geteuid();
  const unsigned group = getegid();
  const std::optional<pid_t> self = sys::number_in_proc(sys::open_pid(getpid()).get());
  if (!self) sys::throw_error(ESRCH, "finding the keeper in /proc");
  auto [ours, mappers] = sys::socket_pair(sys::SocketType::seqpacket);
  // Stays outside: more ids than one are given from there only.
  const pid_t mapper = fork();
  if (mapper < 0) sys::throw_errno("cloning a process");
  if (mapper == 0) {
    ours.reset();
    char go = 0;
    if (read(mappers.get(), &go, 1) != 1) _exit(1);
    const MapReport report = give_ids(*self, subordinate);
    _exit(sys::try_send_value(mappers.get(), report) ? 0 : 1);
  }
  mappers.reset();
  const int entered = unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
  MapReport report{};
  if (entered == 0) {
    static_cast<void>(sys::try_send_value(ours.get(), 'g'));
    if (read(ours.get(), &report, sizeof report) != sizeof report) report = {};
  }
  ours.reset();
  while (waitpid(mapper, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (entered != 0) sys::throw_error(entered, "making a user namespace");
  if (report.mapped) return "";
  report.text[sizeof report.text - 1] = '\0';
  if (report.half) sys::throw_error(EPERM, std::string("mapping user ids: ") + report.text);
  // Before gid_map, or the kernel refuses that: nobody may leave a group who was put into it.
  sys::write_control_file_at(AT_FDCWD, "/proc/self/setgroups", "deny");
  sys::write_control_file_at(AT_FDCWD, "/proc/self/gid_map", "0 " + std::to_string(group) + " 1\n");
  sys::write_control_file_at(AT_FDCWD, "/proc/self/uid_map", "0 " + std::to_string(user) + " 1\n");
  return report.text[0] == '\0' ? "no other could be had" : report.text;
}

// Whether this process is the machine's root in person, under whatever number: it owns the kernel's
// settings, and would without any capability be free to write them.
bool is_machines_root() {
  struct stat status{};
  // Where it cannot be seen it is assumed.
  return stat("/proc/sys/kernel", &status) < 0 || status.st_uid == geteuid();
}

std::uint32_t random_below(std::uint32_t bound) {
  std::uint32_t value = 0;
  if (getentropy(&value, sizeof value) < 0) sys::throw_errno("choosing user ids");
  return value % bound;
}

std::optional<std::uint32_t> pick_pair(const std::optional<IdRange>& range) {
  if (!range) return std::nullopt;
  return range->first + 2 * random_below(range->count / 2);
}

std::string map_text(const std::optional<std::uint32_t>& first) {
  if (!first) return std::to_string(kUserId) + " 0 1\n";
  return "0 " + std::to_string(*first) + " 1\n" + std::to_string(kUserId) + " " +
         std::to_string(*first + 1) + " 1\n";
}

}  // namespace

std::optional<SubordinateIds> decode_subordinate_ids(std::string_view text) {
  std::array<std::uint32_t, 4> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) {
      if (!text.starts_with(':')) return std::nullopt;
      text.remove_prefix(1);
    }
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  if (!text.empty() || numbers[1] < 2 || numbers[3] < 2) return std::nullopt;
  return SubordinateIds{.users = {numbers[0], numbers[1]}, .groups = {numbers[2], numbers[3]}};
}

std::optional<IdRange> spare_ids(std::string_view map) {
  IdRange largest;
  while (!map.empty()) {
    std::string_view line = map.substr(0, map.find('\n'));
    map.remove_prefix(std::min(line.size() + 1, map.size()));
    const auto first = take_number(line);
    const auto outside = take_number(line);
    const auto count = take_number(line);
    if (!first || !outside || !count || *count == 0) continue;
    IdRange extent{*first, *count};
    if (contains(extent, kHighIds)) return kHighIds;
    if (extent.first == 0) {
      ++extent.first;
      --extent.count;
    }
    if (extent.count > largest.count) largest = extent;
  }
  if (largest.count < 2) return std::nullopt;
  if (largest.count < kManyIds) return largest;
  // Not its beginning, where the people of a container are, nor its end, where 65534 may be.
  return IdRange{largest.first + largest.count / 2, largest.count / 4};
}

std::string SandboxIds::user_map() const { return map_text(first_user); }
std::string SandboxIds::group_map() const { return map_text(first_group); }

KeeperIdentity::KeeperIdentity(const std::optional<SubordinateIds>& subordinate) {
  std::string why_one = "no other is mapped here";
  if (geteuid() != 0 || !may(CAP_SYS_ADMIN) || !may_give_ids()) {
    why_one = enter_user_namespace(subordinate);
    is_root_here_ = false;
  }
  users_ = spare_ids(read_proc("/proc/self/uid_map"));
  groups_ = spare_ids(read_proc("/proc/self/gid_map"));
  if (!users_ || !groups_) {
    users_.reset();
    groups_.reset();
    if (is_machines_root()) {
      sys::throw_error(EPERM, "finding a user for programs that is not the machine's root");
    }
  }
  drops_groups_ = read_proc("/proc/self/setgroups").starts_with("allow");
  if (drops_groups_ && syscall(SYS_setgroups, 0, nullptr) < 0) sys::throw_errno("dropping groups");
  description_ = users_ ? "user ids of their own" : "one user id (" + why_one + ")";
}

SandboxIds KeeperIdentity::pick() const {
  return {.first_user = pick_pair(users_), .first_group = pick_pair(groups_)};
}

}  // namespace casemate::guest
