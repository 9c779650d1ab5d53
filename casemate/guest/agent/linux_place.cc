#include "casemate/guest/agent/linux_place.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/call_network.h"
#include "casemate/guest/agent/inode_reserve.h"
#include "casemate/guest/agent/landlock.h"
#include "casemate/guest/agent/remove_tree.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/guest/agent/seccomp.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"

namespace casemate::guest {
namespace {

// Of the sandbox's root, which is read-only.
constexpr char kEmptyDirectory[] = "/run";
// Of one call. The kernel has 3,072 for all user namespaces together (kernel.pty.max, .reserve).
constexpr std::uint64_t kMaxTerminals = 32;
constexpr int kRanOut = 1;
constexpr std::chrono::milliseconds kTryPatience{200};

void make_directory(int quota, const std::string& path, unsigned mode, unsigned owner) {
  if (mkdirat(quota, path.c_str(), mode) < 0 &&
      (errno != ENOSPC || !use_reserved_inode(quota, path, mode))) {
    sys::throw_errno("making " + path);
  }
  if (owner != 0 && fchownat(quota, path.c_str(), owner, owner, AT_SYMLINK_NOFOLLOW) < 0) {
    sys::throw_errno("giving away " + path);
  }
}

int set_limit(int resource, std::uint64_t value) noexcept {
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  return setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 ? 0 : errno;
}

// Parts of /proc that are the machine's and readable for everybody, some writable.
constexpr const char* kHiddenDirectories[] = {
    // How the whole machine stalls for want of memory, processors and disks: and who writes to
    // these
    // files is told of each stall.
    "/proc/pressure",
    // Its firmware and devices.
    "/proc/acpi", "/proc/asound", "/proc/scsi"};
constexpr const char* kHiddenFiles[] = {
    // What it was started with; people put secrets there.
    "/proc/cmdline",
    // When keys are pressed and packets come.
    "/proc/interrupts"};

// Puts an empty one in its place, if it is there.
void hide(const char* empty, const char* path) {
  if (access(path, F_OK) == 0) sys::bind(AT_FDCWD, empty, AT_FDCWD, path);
}

// What most calls leave is empty: then it takes six system calls and not forty.
bool remove_empty_scope(int calls, const std::string& name) {
  bool gone = false;
  for (const char* path : {"/dir/work", "/dir", "/tmp", "/shm", "/host", ""}) {
    gone = unlinkat(calls, (name + path).c_str(), AT_REMOVEDIR) == 0;
  }
  return gone;
}

}  // namespace

LinuxPlace::LinuxPlace(Config config, const ProgramGroup* programs)
    : config_(std::move(config)),
      programs_(programs),
      quota_(sys::open_at(AT_FDCWD, kQuotaDirectory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)),
      self_(sys::open_pid(getpid())) {}

std::vector<std::string> LinuxPlace::kept_directories() const {
  return {config_.work_dir, kHomeDirectory};
}

void LinuxPlace::open_call_scope(std::string_view id, HostSockets sockets) {
  const std::string own = "calls/" + std::string(id);
  // Where it is there, all of it is another call's.
  make_directory(quota_.get(), own, 0700, 0);
  try {
    fill_call_scope(id, sockets);
  } catch (...) {
    // Half of one would be in everybody's way: of a full disk it may have what was left.
    close_call_scope(id);
    throw;
  }
}

void LinuxPlace::fill_call_scope(std::string_view id, HostSockets sockets) {
  const std::string own = "calls/" + std::string(id);
  const std::string mount_point = "workspace/" + std::string(id);
  make_directory(quota_.get(), own + "/dir", 0755, kUserId);
  make_directory(quota_.get(), own + "/dir/work", 0755, kUserId);
  make_directory(quota_.get(), own + "/tmp", 01777, 0);
  make_directory(quota_.get(), own + "/shm", 01777, 0);
  // Root's, so that no program can put something else in its place; empty for every other call.
  make_directory(quota_.get(), mount_point, 0755, 0);
  if (config_.one_id) {
    // Its programs own the work directory, and one may have closed it to itself and all that
    // follow.
    if (fchmodat(quota_.get(), "workspace", 01777, 0) < 0) sys::throw_errno("opening /workspace");
    is_mounted_ = true;
    cover_mount_point(id);
  }
  const std::string directory = config_.work_dir + "/" + std::string(id);
  sys::bind(quota_.get(), (own + "/dir").c_str(), AT_FDCWD, directory.c_str());
  is_mounted_ = true;
  sys::bind(quota_.get(), (own + "/tmp").c_str(), AT_FDCWD, "/tmp");
  sys::bind(quota_.get(), (own + "/shm").c_str(), AT_FDCWD, "/dev/shm");
  sys::attach(sys::make_terminals(kMaxTerminals).get(), AT_FDCWD, "/dev/pts");
  if (sockets == HostSockets::yes) {
    // Root's as well: what is bound here stays what it is.
    make_directory(quota_.get(), own + "/host", 0755, 0);
    sys::bind(quota_.get(), (own + "/host").c_str(), AT_FDCWD, kCallDirectory);
  }
  // Covered, and nobody here may uncover it. Taking it away would wait for an RCU grace period of
  // the whole machine, milliseconds on a busy one.
  sys::bind(AT_FDCWD, kEmptyDirectory, AT_FDCWD, kQuotaDirectory);
}

// The same in every call, each of which sees its own: a program that lost its environment still
// finds it.
std::string LinuxPlace::socket_directory(std::string_view /*id*/) const { return kCallDirectory; }

void LinuxPlace::enter_call_network(const std::vector<std::string>& addresses) {
  enter_network(addresses);
  has_doors_ = true;
}

void LinuxPlace::seal_sockets() {
  const sys::UniqueFd directory = sys::open_at(AT_FDCWD, kCallDirectory, O_PATH | O_DIRECTORY);
  sys::restrict_mount(directory.get(), {.read_only = true, .no_exec = true});
}

// Programs own the mount point too, and what is a mount in another namespace only can be renamed
// and removed: the call would find its directory gone, or another's in its place. So an empty
// directory is mounted there first, in every namespace of the sandbox, and the call's own over that
// here. What a program may have put there before is covered, or refused if it is a link.
void LinuxPlace::cover_mount_point(std::string_view id) {
  const std::string directory = config_.work_dir + "/" + std::string(id);
  const sys::UniqueFd empty = sys::clone_tree(AT_FDCWD, kEmptyDirectory);
  sys::attach_unlinked(empty.get(), AT_FDCWD, directory.c_str());
  sys::unshare_mount(directory.c_str());
}

// A mount point of this very namespace cannot be removed. Where nobody else has a mount there it is
// put aside, because taking one away waits for an RCU grace period of the whole machine.
void LinuxPlace::clear_mount_point(const std::string& directory) const {
  if (!config_.one_id) {
    const sys::UniqueFd mount = sys::open_at(AT_FDCWD, directory.c_str(), O_PATH | O_DIRECTORY);
    return sys::attach(mount.get(), AT_FDCWD, kEmptyDirectory);
  }
  for (int mounts = 2; mounts > 0; --mounts) {
    umount2(directory.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  }
}

bool LinuxPlace::close_call_scope(std::string_view id) noexcept {
  try {
    const std::string name(id);
    if (is_mounted_) clear_mount_point(config_.work_dir + "/" + name);
    const sys::UniqueFd calls =
        sys::open_at(quota_.get(), "calls", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const bool tree_gone =
        remove_empty_scope(calls.get(), name) || remove_tree(calls.get(), name) == 0;
    const std::string mount_point = "workspace/" + name;
    const bool mount_point_gone =
        unlinkat(quota_.get(), mount_point.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
    return tree_gone && mount_point_gone;
  } catch (...) {
    return false;
  }
}

pid_t LinuxPlace::clone_exec_init() {
  // The first has the mounts of the call for its own: copying them takes time, and taking a copy
  // away waits for the whole machine (an RCU grace period).
  const std::uint64_t mounts = first_exec_ ? 0 : CLONE_NEWNS;
  try {
    const pid_t pid = sys::clone_process(CLONE_NEWPID | mounts);
    if (pid == 0) sys::die_with_parent(self_.get());
    first_exec_ = false;
    return pid;
  } catch (const std::system_error& error) {
    errno = error.code().value();
    return -1;
  }
}

bool LinuxPlace::end_leftovers() noexcept { return true; }

void LinuxPlace::enter_exec_scope() {
  // The call's /proc stays below this one, out of reach: this process's children have no right to
  // take a mount away.
  const sys::UniqueFd proc = sys::make_proc();
  sys::attach(proc.get(), AT_FDCWD, "/proc");
  for (const char* path : kHiddenDirectories) hide(kEmptyDirectory, path);
  for (const char* path : kHiddenFiles) hide("/dev/null", path);
  landlock_ = make_landlock(config_.work_dir);
}

void LinuxPlace::count_refusals() {
  if (programs_ != nullptr) before_ = read_refusals(*programs_);
}

void LinuxPlace::give_pipe(int pipe) {
  if (fchown(pipe, kUserId, kUserId) < 0) sys::throw_errno("giving a pipe to the program");
}

void LinuxPlace::kill_exec_scope() noexcept { kill(-1, SIGKILL); }

Place::DiskFull LinuxPlace::disk_full() const noexcept {
  struct statfs status{};
  if (fstatfs(quota_.get(), &status) < 0) return DiskFull::no;
  if (status.f_bavail == 0) return DiskFull::of_bytes;
  return status.f_ffree == 0 ? DiskFull::of_files : DiskFull::no;
}

Place::Refused LinuxPlace::refused() noexcept {
  if (programs_ == nullptr) return {};
  const Refusals now = read_refusals(*programs_);
  return {.forks = now.forks > before_.forks, .memory = now.memory_kills > before_.memory_kills};
}

int LinuxPlace::limit_processes() const noexcept {
  if (config_.processes == 0) return 0;
  // The kernel counts by user: the doors, and with one for all the agent, the call and the
  // exec-init as well.
  return set_limit(RLIMIT_NPROC,
                   config_.processes + (config_.one_id ? 3 : 0) + (has_doors_ ? 1 : 0));
}

// By trying, as a program's user: a first process, which has the place of the program that ended,
// and one more.
bool LinuxPlace::processes_ran_out() noexcept {
  if (config_.processes == 0) return false;
  const pid_t first = fork();
  if (first < 0) return false;
  if (first == 0) {
    if (become_user() != 0 || limit_processes() != 0) _exit(0);
    const pid_t second = fork();
    if (second == 0) _exit(0);
    _exit(second < 0 && errno == EAGAIN ? kRanOut : 0);
  }
  // What has the same user can stop it, so it is not waited for without end.
  try {
    sys::wait_ended(sys::open_pid(first).get(), std::chrono::steady_clock::now() + kTryPatience);
  } catch (const std::exception&) {
  }
  kill(first, SIGKILL);
  int status = 0;
  while (waitpid(first, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == kRanOut;
}

int LinuxPlace::join_groups(std::span<const int> groups) noexcept {
  if (programs_ != nullptr && write(programs_->members.get(), "0", 1) != 1) return errno;
  if (const int error = Place::join_groups(groups)) return error;
  // A view of the groups that begins here: the machine's names of them are not for programs.
  return syscall(SYS_unshare, CLONE_NEWCGROUP) == 0 ? 0 : errno;
}

int LinuxPlace::become_user() noexcept {
  // The calls by number: glibc's wrappers are for processes with threads.
  if (config_.drops_groups && syscall(SYS_setgroups, 0, nullptr) < 0) return errno;
  if (syscall(SYS_setresgid, kUserId, kUserId, kUserId) < 0) return errno;
  if (syscall(SYS_setresuid, kUserId, kUserId, kUserId) < 0) return errno;
  // Leaving user 0 empties the effective and permitted sets; the inheritable one stays.
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0) return errno;
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct empty[2]{};
  if (syscall(SYS_capset, &header, empty) < 0) return errno;
  // The kernel forgot the tie to the parent when the ids changed. What it protected is over: the
  // exec-init, whose end ends all of its pid namespace, is tied itself.
  return 0;
}

int LinuxPlace::filter_calls() noexcept { return install_seccomp_filter(); }

int LinuxPlace::confine_program() noexcept {
  // No memory images of programs in the quota.
  if (const int error = set_limit(RLIMIT_CORE, 0)) return error;
  if (config_.open_files > 0) {
    if (const int error = set_limit(RLIMIT_NOFILE, config_.open_files)) return error;
  }
  if (const int error = limit_processes()) return error;
  if (config_.cpu_seconds > 0) {
    // SIGKILL at once, as at every bound; a lower one of the application's stays.
    rlimit own{};
    if (getrlimit(RLIMIT_CPU, &own) < 0) return errno;
    const int error = set_limit(RLIMIT_CPU, std::min<rlim_t>(config_.cpu_seconds, own.rlim_max));
    if (error != 0) return error;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return errno;
  if (landlock_) {
    if (const int error = enter_landlock(landlock_.get())) return error;
  }
  return install_seccomp_filter();
}

}  // namespace casemate::guest
