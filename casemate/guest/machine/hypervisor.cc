#include "casemate/guest/machine/hypervisor.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/rootfs.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

// In this process's mount namespace; it uses no device itself.
constexpr char kPlace[] = "/dev";
constexpr const char* kTopNames[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
constexpr const char* kDevices[] = {"null", "zero", "urandom", "random"};
constexpr int kStreamNumber = 3;
constexpr int kControlNumber = 4;
// Its disk, its memory, its threads' events: far fewer.
constexpr rlim_t kMostFiles = 256;

// A root for one hypervisor, at `kPlace` while this lives.
class HypervisorRoot {
 public:
  explicit HypervisorRoot(const MachinePlan& plan)
      : devices_(sys::open_at(AT_FDCWD, kPlace, O_PATH | O_DIRECTORY)),
        root_(sys::make_tmpfs({.size = 1 << 20, .inodes = 256, .mode = 0755}, {.no_dev = false})) {
    for (const char* name : {"usr", "dev", "machine", "proc"}) {
      sys::make_directory_at(root_.get(), name, 0755);
    }
    show("/usr", "usr", {.read_only = true});
    for (const char* name : kTopNames) add_top(name);
    for (const char* name : kDevices) add_device(name, /*read_only=*/true);
    if (plan.uses_kvm) add_device("kvm", /*read_only=*/false);
    for (const MachinePlan::File& file : plan.files) {
      add_file(file.path, file.name, {.read_only = true, .no_exec = true});
    }
    sys::attach(root_.get(), AT_FDCWD, kPlace);
  }
  ~HypervisorRoot() { umount2(kPlace, MNT_DETACH | UMOUNT_NOFOLLOW); }
  HypervisorRoot(const HypervisorRoot&) = delete;
  HypervisorRoot& operator=(const HypervisorRoot&) = delete;

 private:
  void show(const std::string& from, const std::string& to,
            const sys::MountAttributes& attributes) {
    const UniqueFd tree = sys::clone_tree(AT_FDCWD, from.c_str());
    sys::restrict_tree(tree.get(), attributes);
    sys::attach(tree.get(), root_.get(), to.c_str());
  }
  void add_file(const std::string& path, const std::string& name,
                const sys::MountAttributes& attributes) {
    const std::string to = "machine/" + name;
    sys::write_file_at(root_.get(), to.c_str(), "", 0644);
    show(path, to, attributes);
  }
  void add_device(const char* name, bool read_only) {
    const std::string to = std::string("dev/") + name;
    sys::write_file_at(root_.get(), to.c_str(), "", 0644);
    const UniqueFd tree = sys::clone_tree(devices_.get(), name);
    sys::restrict_mount(tree.get(), {.read_only = read_only, .no_dev = false, .no_exec = true});
    sys::attach(tree.get(), root_.get(), to.c_str());
  }
  void add_top(const char* name) {
    const std::string path = std::string("/") + name;
    struct stat status{};
    if (lstat(path.c_str(), &status) < 0) return;
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
      if (length < 0) sys::throw_errno("reading the link " + path);
      target[length] = '\0';
      if (symlinkat(target, root_.get(), name) < 0) sys::throw_errno("linking " + path);
    } else if (S_ISDIR(status.st_mode)) {
      sys::make_directory_at(root_.get(), name, 0755);
      show(path, name, {.read_only = true});
    }
  }

  UniqueFd devices_;
  UniqueFd root_;
};

void set_limit(int resource, rlim_t value) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) < 0) {
    sys::throw_errno("reading a limit");
  }
  limit.rlim_cur = std::min(value, limit.rlim_max);
  limit.rlim_max = limit.rlim_cur;
  if (setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) < 0) {
    sys::throw_errno("setting a limit");
  }
}

void become_nobody(const SandboxIds& ids) {
  // Then there is no other.
  if (ids.one()) return;
  // Supplementary groups stay: by one of them it may open /dev/kvm.
  if (syscall(SYS_setresgid, kUserId, kUserId, kUserId) < 0) {
    sys::throw_errno("becoming a group of no rights");
  }
  if (syscall(SYS_setresuid, kUserId, kUserId, kUserId) < 0) {
    sys::throw_errno("becoming a user of no rights");
  }
}

void empty_bounding_set() {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability) < 0) sys::throw_errno("emptying the bounding set");
  }
}

void take_number(const UniqueFd& descriptor, int number) {
  if (dup2(descriptor.get(), number) < 0) sys::throw_errno("giving the hypervisor a descriptor");
}

[[noreturn]] void become_hypervisor(const std::string& program,
                                    const std::vector<std::string>& arguments,
                                    HypervisorParts parts, const SandboxIds& ids,
                                    const std::vector<UniqueFd>& groups, const UniqueFd& go,
                                    const UniqueFd& parent) {
  try {
    // Before anything is its own that they would not count.
    for (const UniqueFd& group : groups) {
      if (write(group.get(), "0", 1) != 1) sys::throw_errno("joining a control group");
    }
    char byte = 0;
    if (read(go.get(), &byte, 1) != 1) sys::throw_error(ESRCH, "waiting for id maps");
    sys::make_all_private();
    const UniqueFd root = sys::clone_tree(AT_FDCWD, kPlace);
    sys::restrict_mount(root.get(), {.read_only = true, .no_dev = false});
    sys::attach(root.get(), AT_FDCWD, "/proc");
    sys::replace_root(root.get());
    empty_bounding_set();
    become_nobody(ids);
    sys::die_with_parent(parent.get());
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_NOFILE, kMostFiles);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) sys::throw_errno("giving up new rights");
    const UniqueFd null = sys::open_at(AT_FDCWD, "/dev/null", O_RDWR);
    // First above all numbers that are given, so that none is overwritten.
    const UniqueFd stream(fcntl(parts.stream.get(), F_DUPFD_CLOEXEC, 16));
    const UniqueFd control(fcntl(parts.control.get(), F_DUPFD_CLOEXEC, 16));
    const UniqueFd console(fcntl(parts.console.get(), F_DUPFD_CLOEXEC, 16));
    take_number(null, 0);
    take_number(console, 1);
    take_number(console, 2);
    take_number(stream, kStreamNumber);
    take_number(control, kControlNumber);
    sys::close_from(kControlNumber + 1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    std::vector<char*> words{const_cast<char*>(program.c_str())};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    char* environment[] = {nullptr};
    execve(program.c_str(), words.data(), environment);
    dprintf(2, "%s does not start: %s\n", program.c_str(), strerror(errno));
  } catch (const std::exception& error) {
    dprintf(parts.console.get(), "the hypervisor does not start: %s\n", error.what());
  }
  _exit(1);
}

void write_id_maps(int process, const SandboxIds& ids) {
  const std::optional<pid_t> number = sys::number_in_proc(process);
  if (!number) sys::throw_error(ESRCH, "finding the hypervisor in /proc");
  const std::string folder = "/proc/" + std::to_string(*number) + "/";
  sys::write_control_file_at(AT_FDCWD, (folder + "uid_map").c_str(), ids.user_map());
  sys::write_control_file_at(AT_FDCWD, (folder + "gid_map").c_str(), ids.group_map());
}

}  // namespace

Hypervisor start_hypervisor(const MachinePlan& plan, const std::vector<std::string>& arguments,
                            HypervisorParts parts, const SandboxIds& ids,
                            const std::vector<UniqueFd>& groups) {
  const HypervisorRoot root(plan);
  const UniqueFd self = sys::open_pid(getpid());
  auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
  Hypervisor started;
  started.pid = sys::clone_process(kAllNamespaces);
  if (started.pid == 0) {
    ours.reset();
    become_hypervisor(plan.program, arguments, std::move(parts), ids, groups, theirs, self);
  }
  try {
    started.process = sys::open_pid(started.pid);
    write_id_maps(started.process.get(), ids);
    if (!sys::try_send_value(ours.get(), 'g')) sys::throw_errno("starting the hypervisor");
  } catch (...) {
    kill(started.pid, SIGKILL);
    while (waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw;
  }
  return started;
}

}  // namespace casemate::guest
