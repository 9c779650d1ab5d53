#include "casemate/local/diagnosis.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "casemate/core/hints.h"
#include "casemate/sys/file.h"

namespace casemate::local {
namespace {

constexpr std::size_t kMaxFileBytes = 16 << 20;

constexpr const char* kNamespaceSettings[] = {
    "user.max_user_namespaces",  "user.max_mnt_namespaces", "user.max_pid_namespaces",
    "user.max_net_namespaces",   "user.max_ipc_namespaces", "user.max_uts_namespaces",
    "user.max_cgroup_namespaces"};
constexpr const char* kCloneSetting = "kernel.unprivileged_userns_clone";
constexpr const char* kAppArmorSetting = "kernel.apparmor_restrict_unprivileged_userns";
constexpr const char* kMemoryFileSetting = "vm.memfd_noexec";

std::string read_quietly(const char* path) {
  try {
    return sys::read_file_if_there(AT_FDCWD, path, kMaxFileBytes).value_or("");
  } catch (const std::system_error&) {
    return "";
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool is_there(const char* path) { return access(path, F_OK) == 0; }

std::string container_here() {
  if (is_there("/run/.containerenv")) return "podman";
  if (is_there("/.dockerenv")) return "docker";
  return std::getenv("container") != nullptr || std::getenv("KUBERNETES_SERVICE_HOST") != nullptr
             ? "a container"
             : "";
}

std::string path_of_setting(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return "/proc/sys/" + name;
}

// The fifth field of each line, in the order of mounting.
std::vector<std::string> mount_points(std::string_view mountinfo) {
  std::vector<std::string> points;
  while (!mountinfo.empty()) {
    std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    for (int field = 1; field < 5 && !line.empty(); ++field) {
      line.remove_prefix(std::min(line.find(' '), line.size()));
      line.remove_prefix(std::min<std::size_t>(1, line.size()));
    }
    if (!line.empty()) points.emplace_back(line.substr(0, line.find(' ')));
  }
  return points;
}

Remedy as_root(std::string_view what, std::string command) {
  return {.hint = fmt::format("{}; as root: {}", what, command), .command = std::move(command)};
}

// What of an engine's own walls is in the way of ours.
enum class GivenUp { filter, filter_and_covers };

// No command: the container is started anew, by a line that only its owner knows.
Remedy start_container_with(const HostFacts& facts, std::string_view what, GivenUp given_up) {
  std::string docker = "docker run";
  std::string podman = "podman run";
  if (given_up == GivenUp::filter_and_covers) {
    docker += " --security-opt systempaths=unconfined";
    podman += " --security-opt unmask=ALL";
  }
  if (facts.filtered) {
    docker += " --security-opt seccomp=unconfined";
    podman += " --security-opt seccomp=unconfined";
  }
  if (given_up == GivenUp::filter_and_covers && !facts.profile.empty()) {
    docker += " --security-opt apparmor=unconfined";
    podman += " --security-opt apparmor=unconfined";
  }
  return {
      .hint = fmt::format("{}; besides the options that it has, start the container with {}, or {}",
                          what, docker, podman),
      .command = ""};
}

// Namespaces of the kinds of which there may be no more.
Remedy raise_namespace_bounds(const HostFacts& facts) {
  std::string none;
  for (const char* name : kNamespaceSettings) {
    if (facts.setting_is(name, "0")) none += fmt::format(" {}=15000", name);
  }
  if (!none.empty()) return as_root("namespaces are switched off here", "sysctl -w" + none);
  return as_root("there are as many namespaces as this machine allows, or 32 one in another",
                 fmt::format("sysctl -w {}=100000", kNamespaceSettings[0]));
}

// Of steps that ask for no privilege.
Remedy lift_filter(const HostFacts& facts) {
  if (!facts.container.empty()) {
    return start_container_with(facts,
                                "a filter of system calls refuses that, the container's engine's "
                                "for one (a newer engine knows the calls of newer kernels)",
                                GivenUp::filter);
  }
  return {.hint =
              "whoever started this process filters its system calls (Seccomp in "
              "/proc/self/status); a systemd unit by SystemCallFilter= or RestrictNamespaces=",
          .command = ""};
}

// A user namespace, or the capabilities in it, refused.
Remedy allow_user_namespaces(const HostFacts& facts, int error) {
  if (facts.setting_is(kAppArmorSetting, "1")) {
    return as_root("AppArmor keeps user namespaces from programs without a profile of their own",
                   fmt::format("sysctl -w {}=0", kAppArmorSetting));
  }
  if (facts.setting_is(kCloneSetting, "0")) {
    return as_root("user namespaces are for root only here",
                   fmt::format("sysctl -w {}=1", kCloneSetting));
  }
  if (facts.filtered && !facts.container.empty()) {
    return start_container_with(facts, "the container's engine keeps namespaces from programs",
                                GivenUp::filter_and_covers);
  }
  if (facts.filtered) return lift_filter(facts);
  if (error == EINVAL || error == ENOSYS) {
    return {
        .hint = "sandboxes of this machine need Linux 5.12 or newer with every kind of namespace",
        .command = ""};
  }
  return {.hint = facts.chrooted
                      ? "the kernel refuses user namespaces in a chroot: enter the directory with "
                        "systemd-nspawn -D, or bwrap, which make it a root of its own"
                      : "the kernel refuses them in a chroot, and security modules may: their log "
                        "says so",
          .command = ""};
}

Remedy uncover_proc(const HostFacts& facts) {
  // Left in an image, the mark of an engine is also found where none is.
  const bool by_engine = std::any_of(
      facts.covered.begin(), facts.covered.end(),
      [](const std::string& path) { return path == "/proc/kcore" || path == "/proc/sys"; });
  if (by_engine && !facts.container.empty()) {
    return start_container_with(facts, "the container's engine hides parts of /proc",
                                GivenUp::filter_and_covers);
  }
  if (facts.covered.empty()) {
    return {.hint =
                "no /proc is mounted here whole, and who is not root may not make one that "
                "shows more",
            .command = ""};
  }
  std::string command = "umount";
  for (const std::string& path : facts.covered) command += " " + path;
  return as_root(
      "something is mounted over parts of /proc, and who is not root may not make one "
      "that shows more",
      command);
}

bool begins(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return text.starts_with(beginning); });
}

// What only who is root of a user namespace may do.
bool needs_namespaces(std::string_view failure) {
  return begins(failure, {"making a user namespace",
                          "making a mount namespace",
                          "making a network namespace",
                          "cloning a process",
                          "writing /proc/",
                          "writing \"",
                          "becoming ",
                          "dropping groups",
                          "naming the sandbox",
                          "raising the loopback interface",
                          "opening a socket for the loopback interface",
                          "creating a ",
                          "mounting ",
                          "setting ",
                          "restricting a mount",
                          "cloning the mounts",
                          "detaching ",
                          "sharing ",
                          "making private",
                          "making the mounts",
                          "making mounts private",
                          "entering the new root",
                          "replacing the root",
                          "giving away "});
}

}  // namespace

Remedy install_package(std::string_view package, std::string_view options) {
  if (access("/usr/bin/apt-get", X_OK) != 0) {
    return {.hint = fmt::format("install what Debian has in its package {}", package),
            .command = ""};
  }
  const std::string command = fmt::format("apt-get update && apt-get install -y {}{}{}", options,
                                          options.empty() ? "" : " ", package);
  return {.hint = "as root: " + command, .command = command};
}

bool HostFacts::setting_is(const std::string& name, std::string_view value) const {
  const auto found = settings.find(name);
  return found != settings.end() && found->second == value;
}

std::vector<std::string> covered_parts(std::string_view mountinfo) {
  std::vector<std::string> parts;
  for (const std::string& point : mount_points(mountinfo)) {
    if (point.starts_with("/proc/") && point != "/proc/sys/fs/binfmt_misc") parts.push_back(point);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool is_chrooted(std::string_view mountinfo) {
  const std::vector<std::string> points = mount_points(mountinfo);
  return !points.empty() && std::find(points.begin(), points.end(), "/") == points.end();
}

HostFacts look_at_host() {
  HostFacts facts;
  facts.user = geteuid();
  rlimit processes{};
  if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY) {
    facts.most_processes = std::to_string(processes.rlim_cur);
  }
  facts.proc = is_there("/proc/self/fd");
  const std::string status = read_quietly("/proc/self/status");
  facts.filtered = status.find("\nSeccomp:\t2") != std::string::npos;
  const std::string mountinfo = read_quietly("/proc/self/mountinfo");
  facts.chrooted = is_chrooted(mountinfo);
  facts.covered = covered_parts(mountinfo);
  facts.container = container_here();
  facts.profile = first_line(read_quietly("/proc/self/attr/apparmor/current"));
  if (facts.profile.starts_with("unconfined")) facts.profile.clear();
  const auto add_setting = [&](const char* name) {
    const std::string value = first_line(read_quietly(path_of_setting(name).c_str()));
    if (!value.empty()) facts.settings[name] = value;
  };
  for (const char* name : kNamespaceSettings) add_setting(name);
  for (const char* name : {kCloneSetting, kAppArmorSetting, kMemoryFileSetting}) add_setting(name);
  return facts;
}

Remedy remedy_for(std::string_view failure, int error, const HostFacts& facts) {
  if (!facts.proc) {
    return as_root("/proc has no entry for this process: mount one of its own pid namespace",
                   "mount -t proc proc /proc");
  }
  if (error == EMFILE) {
    return {.hint =
                "dispose conversations that are over, or raise the limit on open files "
                "(ulimit -n)",
            .command = ""};
  }
  if (error == EFBIG) {
    return {.hint = "raise this process's limit on file sizes (ulimit -f)", .command = ""};
  }
  if (begins(failure, {"making a memory file", "starting the keeper"}) &&
      facts.setting_is(kMemoryFileSetting, "2")) {
    return as_root("this machine runs no program from memory",
                   fmt::format("sysctl -w {}=1", kMemoryFileSetting));
  }
  if (error == ENOSPC && begins(failure, {"making a user namespace", "cloning a process",
                                          "making a mount namespace"})) {
    return raise_namespace_bounds(facts);
  }
  if (error == EAGAIN && begins(failure, {"cloning a process", "starting the keeper"})) {
    return {.hint = fmt::format("this user has as many processes as are allowed: raise the limit "
                                "(ulimit -u{}), or that of the control group this process is in",
                                facts.most_processes.empty() ? "" : " is " + facts.most_processes),
            .command = ""};
  }
  if (begins(failure, {"creating a proc", "mounting a proc"})) return uncover_proc(facts);
  if (begins(failure, {"finding a user for programs"})) {
    return {.hint = "run as an ordinary user, or as a root to whom more user ids are mapped",
            .command = ""};
  }
  if (begins(failure, {"finding user ids for a container"})) {
    return {.hint =
                "a runtime makes containers of two user ids: give this user a range in "
                "/etc/subuid and /etc/subgid, as `casemate doctor` says of user ids, or use the "
                "linux backend",
            .command = ""};
  }
  if (begins(failure, {"mapping user ids"})) {
    return {.hint = "the range of /etc/subuid could not be used", .command = ""};
  }
  const bool refused = error == EPERM || error == EACCES || error == ENOSYS;
  if (needs_namespaces(failure) && (refused || error == EINVAL)) {
    return allow_user_namespaces(facts, error);
  }
  return refused && facts.filtered ? lift_filter(facts) : Remedy();
}

std::string provider_hint(const std::system_error& error) {
  switch (error.code().value()) {
    case EMFILE:
      return kDescriptorsHint;
    case ENOSPC:
    case EDQUOT:
      return "make room where the state directory is, or choose another "
             "(the backend's option state_dir)";
    case EROFS:
      return "the state directory is on a file system that cannot be written: choose another "
             "(the backend's option state_dir)";
    default:
      return "";
  }
}

}  // namespace casemate::local
