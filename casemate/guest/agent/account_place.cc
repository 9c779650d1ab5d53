#include "casemate/guest/agent/account_place.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/account_files.h"
#include "casemate/guest/agent/descendants.h"
#include "casemate/guest/agent/enclosed_mounts.h"
#include "casemate/guest/agent/remove_tree.h"
#include "casemate/guest/agent/seccomp.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"

namespace casemate::guest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kHome[] = "/home/user";
// Root's, on a file system of its own: what is bound here stays what it is.
constexpr char kSocketDirectory[] = "/casemate/calls";
// Past so many tries to kill what descends from an exec, all of its call is killed.
constexpr int kPatientKills = 8;
// A process that SIGKILL does not end in this time hangs in the kernel: its end is not known.
constexpr std::chrono::seconds kReapPatience{8};

// The calls by number: glibc's wrappers are for processes with threads.
void set_users(unsigned real, unsigned effective, unsigned saved) {
  if (syscall(SYS_setresuid, real, effective, saved) < 0) sys::throw_errno("changing user");
}

// Acts with the rights of a call's user and none of root's, and cannot be signalled by that user.
// Linux lets pass what has, as its real or effective id, the other's real or saved one. So the real
// id here is the call's second, which no program has, and no process of another call.
template <typename Act>
void as_user(unsigned user, const Act& act) {
  set_users(user + 1, user, 0);
  act();
  set_users(0, 0, 0);
}

// In one step, between which nothing is made: forks under way fail, their parents being killed.
void kill_all_of(unsigned user) {
  as_user(user, [] { kill(-1, SIGKILL); });
}

bool reap_all(Clock::time_point until) {
  while (true) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (!has_children()) return true;
    if (Clock::now() >= until) return false;
    // Whoever takes longer than this is waited for by looking again.
    sys::poll_until({}, Clock::now() + std::chrono::milliseconds(1));
  }
}

// A lower one of the engine's stays.
int set_limit(int resource, std::uint64_t value) noexcept {
  const auto number = static_cast<__rlimit_resource_t>(resource);
  rlimit own{};
  if (getrlimit(number, &own) < 0) return errno;
  const rlim_t most = std::min<rlim_t>(value, own.rlim_max);
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  return setrlimit(number, &limit) == 0 ? 0 : errno;
}

void make_directory(const std::string& path, unsigned user, unsigned group, unsigned mode) {
  if (mkdir(path.c_str(), mode) < 0) sys::throw_errno("making " + path);
  if (chown(path.c_str(), user, group) < 0) sys::throw_errno("giving away " + path);
}

std::string process_group(unsigned user) {
  return std::string(kProcessGroups) + "/casemate-" + std::to_string(user);
}

// Returns how programs join it.
sys::UniqueFd make_process_group(unsigned user, std::uint64_t most) {
  const std::string group = process_group(user);
  if (mkdir(group.c_str(), 0755) < 0) sys::throw_errno("making " + group);
  // gVisor lets one more in than it is told, as of 2024.
  sys::write_control_file_at(AT_FDCWD, (group + "/pids.max").c_str(), std::to_string(most - 1));
  return sys::open_at(AT_FDCWD, (group + "/cgroup.procs").c_str(), O_WRONLY);
}

// Once it has no processes. Quiet where there is none.
bool remove_process_group(unsigned user) {
  return rmdir(process_group(user).c_str()) == 0 || errno == ENOENT;
}

bool remove_in(const std::string& directory, const std::string& name) {
  const sys::UniqueFd opened = sys::open_at(AT_FDCWD, directory.c_str(), O_PATH | O_DIRECTORY);
  return remove_tree(opened.get(), name) == 0;
}

}  // namespace

AccountPlace::AccountPlace(Config config, unsigned id) : config_(std::move(config)), id_(id) {}

void AccountPlace::prepare_sandbox(const Config& config) {
  share_directory(config.work_dir, config.shared_id, 01775);
  share_directory(kHome, config.shared_id, 0775);
}

pid_t AccountPlace::clone_call(const Config& config) {
  if (config.own_kernel) return sys::clone_process(CLONE_NEWNS | CLONE_NEWIPC);
  const pid_t pid = fork();
  if (pid < 0) sys::throw_errno("cloning a process");
  return pid;
}

void AccountPlace::open_call_scope(std::string_view id, HostSockets sockets) {
  become_subreaper();
  if (config_.own_kernel) mount_call_directories(config_.directory_bytes);
  const std::string directory = config_.work_dir + "/" + std::string(id);
  // Its group is the call's own, and the shared one's rule ends here. Its owner is not: who owns a
  // directory may rename it, and it would not be found when the call ends.
  // Where it is there, all of it is another call's.
  if (mkdir(directory.c_str(), 0700) < 0) sys::throw_errno("making " + directory);
  try {
    fill_call_scope(directory, id, sockets);
  } catch (...) {
    // Half of one would be in everybody's way: of a full disk it may have what was left.
    close_call_scope(id);
    throw;
  }
}

void AccountPlace::fill_call_scope(const std::string& directory, std::string_view id,
                                   HostSockets sockets) {
  removexattr(directory.c_str(), "system.posix_acl_default");
  if (chown(directory.c_str(), 0, id_) < 0) sys::throw_errno("giving away " + directory);
  if (chmod(directory.c_str(), 0700) < 0) sys::throw_errno("closing " + directory);
  make_directory(directory + "/work", id_, id_, 0755);
  if (chmod(directory.c_str(), 0770) < 0) sys::throw_errno("opening " + directory);
  if (sockets == HostSockets::yes) make_directory(socket_directory(id), 0, id_, 0750);
  if (config_.processes > 0) group_ = make_process_group(id_, config_.processes);
}

std::string AccountPlace::socket_directory(std::string_view id) const {
  return std::string(kSocketDirectory) + "/" + std::string(id);
}

bool AccountPlace::close_call_scope(std::string_view id) noexcept try {
  const std::string name(id);
  as_user(id_, [] { remove_ipc_objects(); });
  const bool temporary_gone = remove_temporary_files(id_);
  const bool sockets_gone = remove_in(kSocketDirectory, name);
  const bool group_gone = config_.processes == 0 || remove_process_group(id_);
  return remove_in(config_.work_dir, name) && temporary_gone && sockets_gone && group_gone;
} catch (const std::exception&) {
  return false;
}

pid_t AccountPlace::clone_exec_init() {
  if (!config_.own_kernel) return fork();
  try {
    // The first has the mounts of the call for its own, which spares a copy.
    const pid_t pid = sys::clone_process(CLONE_NEWPID | (first_exec_ ? 0 : CLONE_NEWNS));
    first_exec_ = false;
    return pid;
  } catch (const std::system_error& error) {
    errno = error.code().value();
    return -1;
  }
}

bool AccountPlace::end_leftovers() noexcept try {
  const auto until = Clock::now() + kReapPatience;
  if (!has_children()) return true;
  kill_all_of(id_);
  return reap_all(until);
} catch (const std::exception&) {
  return false;
}

void AccountPlace::enter_exec_scope() {
  if (config_.own_kernel) {
    mount_own_processes();
  } else {
    become_subreaper();
  }
}

void AccountPlace::give_pipe(int pipe) {
  if (fchown(pipe, id_, id_) < 0) sys::throw_errno("giving a pipe to the program");
}

void AccountPlace::kill_exec_scope() noexcept try {
  if (!has_children()) return;
  if (config_.own_kernel) {
    // All that its pid namespace has.
    kill(-1, SIGKILL);
    return;
  }
  if (++kills_ > kPatientKills) return kill_all_of(id_);
  kill_descendants();
} catch (const std::exception&) {
  // Out of memory: the caller comes again while it has children.
}

Place::DiskFull AccountPlace::disk_full() const noexcept {
  const char* const places[] = {config_.work_dir.c_str(), kHome, "/tmp", "/var/tmp", "/dev/shm"};
  DiskFull full = DiskFull::no;
  for (const char* place : places) {
    struct statfs status{};
    if (statfs(place, &status) < 0 || status.f_blocks == 0) continue;
    if (status.f_bavail == 0) return DiskFull::of_bytes;
    // Only what is bounded.
    if (status.f_files != 0 && status.f_ffree == 0) full = DiskFull::of_files;
  }
  return full;
}

Place::Refused AccountPlace::refused() noexcept {
  const Refusals now = read_refusals();
  return {.forks = now.forks > before_.forks, .memory = now.memory_kills > before_.memory_kills};
}

int AccountPlace::join_groups(std::span<const int> groups) noexcept {
  if (const int error = Place::join_groups(groups)) return error;
  if (!group_) return 0;
  return write(group_.get(), "0", 1) == 1 ? 0 : errno;
}

int AccountPlace::become_user() noexcept { return take_ids(id_); }

// By the id that nobody signals with: what ends the programs of any call does not end it.
int AccountPlace::become_file_worker() noexcept { return take_ids(config_.shared_id); }

int AccountPlace::take_ids(unsigned signalled_by) const noexcept {
  const gid_t groups[] = {config_.shared_id};
  if (syscall(SYS_setgroups, 1, groups) < 0) return errno;
  if (syscall(SYS_setresgid, id_, id_, id_) < 0) return errno;
  if (syscall(SYS_setresuid, signalled_by, id_, signalled_by) < 0) return errno;
  // Leaving user 0 empties the effective and permitted sets; the inheritable one stays.
  // EINVAL: a kernel that has no such set (gVisor's).
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL) return errno;
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct empty[2]{};
  return syscall(SYS_capset, &header, empty) < 0 ? errno : 0;
}

int AccountPlace::confine_program() noexcept {
  // No memory images of programs on the quota.
  if (const int error = set_limit(RLIMIT_CORE, 0)) return error;
  if (config_.open_files > 0) {
    if (const int error = set_limit(RLIMIT_NOFILE, config_.open_files)) return error;
  }
  if (config_.cpu_seconds > 0) {
    if (const int error = set_limit(RLIMIT_CPU, config_.cpu_seconds)) return error;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return errno;
  return install_seccomp_filter();
}

namespace {

// Whether a process with that user's rights is there, a program or what serves its files; one that
// has ended and was not reaped is none.
bool has_processes(unsigned user) {
  for (const std::string& name : sys::list_directory_at(AT_FDCWD, "/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto text =
        sys::read_file_if_there(AT_FDCWD, ("/proc/" + name + "/status").c_str(), 64 * 1024);
    if (!text || text->find("\nState:\tZ") != std::string::npos) continue;
    // "Uid:", and the real, effective, saved and file system's id.
    const std::size_t real = text->find("\nUid:\t");
    if (real == std::string::npos) continue;
    const std::size_t effective = text->find('\t', real + 6);
    if (text->substr(effective).starts_with("\t" + std::to_string(user) + "\t")) return true;
  }
  return false;
}

}  // namespace

void kill_account(unsigned id) noexcept try { kill_all_of(id); } catch (const std::exception&) {
  // Without the rights to be somebody else: whoever clears up says what is left.
}

bool clear_account(const AccountPlace::Config& config, unsigned id) noexcept try {
  const auto until = Clock::now() + kReapPatience;
  do {
    kill_all_of(id);
    if (!has_processes(id)) break;
    sys::poll_until({}, Clock::now() + std::chrono::milliseconds(1));
  } while (Clock::now() < until);
  bool gone = !has_processes(id);
  as_user(id, [] { remove_ipc_objects(); });
  gone = remove_temporary_files(id) && gone;
  gone = (config.processes == 0 || remove_process_group(id)) && gone;
  for (const std::string& directory : {std::string(kSocketDirectory), config.work_dir}) {
    const sys::UniqueFd opened =
        sys::open_at(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    for (const std::string& name : sys::list_directory_at(opened.get(), ".")) {
      struct stat status{};
      if (!is_call_id(name)) continue;
      if (fstatat(opened.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
      // Of its sockets' directory the group is the call's.
      if (status.st_gid != id) continue;
      gone = remove_tree(opened.get(), name) == 0 && gone;
    }
  }
  return gone;
} catch (const std::exception&) {
  return false;
}

}  // namespace casemate::guest
