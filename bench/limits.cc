#include "bench/limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "bench/own_directory.h"
#include "bench/process.h"
#include "casemate/base/digest.h"
#include "casemate/core/limits.h"
#include "casemate/local/group_detection.h"
#include "casemate/sys/cgroup.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/mount.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"

namespace casemate::bench {
namespace {

using Clock = std::chrono::steady_clock;
using sys::UniqueFd;

constexpr std::uint64_t kAllNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                         CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
constexpr char kPython[] = "/usr/bin/python3";
constexpr std::size_t kBytes = std::size_t{10} << 20;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A root of a tmpfs with views of /usr and the machine's links into it, a second tmpfs for files
// and a /proc: the mounts without which nothing runs, and no others.
void enter_bare_root() {
  sys::make_all_private();
  const UniqueFd host = sys::open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  const UniqueFd root = sys::make_tmpfs({.size = 1 << 20, .mode = 0755}, {});
  sys::attach(root.get(), AT_FDCWD, "/dev");
  for (const char* name : {"usr", "proc", "tmp"}) sys::make_directory_at(root.get(), name, 0755);
  for (const char* name : {"bin", "lib", "lib64"}) {
    if (symlinkat((std::string("usr/") + name).c_str(), root.get(), name) < 0) {
      sys::throw_errno("linking");
    }
  }
  const UniqueFd usr = sys::clone_tree(host.get(), "usr");
  sys::restrict_tree(usr.get(), {.read_only = true});
  sys::attach(usr.get(), root.get(), "usr");
  sys::attach(sys::make_tmpfs({.size = 1 << 20}, {}).get(), root.get(), "tmp");
  sys::attach(sys::make_proc().get(), root.get(), "proc");
  sys::replace_root(root.get());
}

[[noreturn]] void bare_child(const std::vector<UniqueFd>& groups, int go, bool execute) {
  try {
    for (const UniqueFd& group : groups) {
      if (write(group.get(), "0", 1) != 1) sys::throw_errno("joining a group");
    }
    char byte = 0;
    if (read(go, &byte, 1) != 1) _exit(1);
    // The tmpfs takes no files of an id that its namespace does not know.
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) sys::throw_errno("changing ids");
    enter_bare_root();
    if (!execute) _exit(0);
    execl("/bin/true", "true", nullptr);
  } catch (const std::exception&) {
  }
  _exit(1);
}

// Carries its process, so that what a killed one left is told.
constexpr std::string_view kGroupPrefix = "bench-";

std::string own_group_name() {
  return fmt::format("{}{}-{}", kGroupPrefix, getpid(), random_hex(8));
}

// Removes the groups of bare sandboxes whose process was killed.
void sweep_groups() {
  const auto layout = local::detect_groups().layout;
  // Above the group of any sandbox, also of one that there is not.
  for (const std::string& group : local::sandbox_directories(layout, "none")) {
    const std::filesystem::path above = std::filesystem::path(group).parent_path();
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(above, ignored)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kGroupPrefix)) continue;
      const pid_t owner = std::atoi(name.c_str() + kGroupPrefix.size());
      if (owner > 0 && kill(owner, 0) < 0 && errno == ESRCH) {
        sys::remove_control_group(entry.path().string());
      }
    }
  }
}

// The same groups as a sandbox of ours with one call, all namespaces, the mounts, pivot_root, and
// all of it removed.
double bare_sandbox(bool execute) {
  static const local::ControlGroupLayout kLayout = local::detect_groups().layout;
  const std::string id = own_group_name();
  const auto start = Clock::now();
  local::carry_out(local::sandbox_steps(kLayout, id, Resources{}));
  if (execute) local::carry_out(local::call_steps(kLayout, id, "bare", 64));
  const auto members = local::open_members(execute ? local::member_directories(kLayout, id, "bare")
                                                   : local::agent_directories(kLayout, id));
  auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
  const pid_t pid = sys::clone_process(kAllNamespaces);
  if (pid == 0) bare_child(members, theirs.get(), execute);
  for (const char* map : {"uid_map", "gid_map"}) {
    sys::write_control_file_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/" + map).c_str(),
                               "0 1879048192 1\n");
  }
  static_cast<void>(send(ours.get(), "g", 1, MSG_NOSIGNAL));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  for (const std::string& group : local::sandbox_directories(kLayout, id)) {
    sys::remove_control_group(group);
  }
  const double took = since(start);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error("the bare sandbox did not run its program");
  }
  return took;
}

void write_all(int socket, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(socket, &bytes[sent], bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

// 10 MiB from one process's memory to another's file costs two sockets at least: host to guest, and
// within the guest to whoever may write it.
double two_socket_hops() {
  static const std::string kData(kBytes, 'x');
  auto [a, b] = sys::socket_pair(sys::SocketType::stream);
  auto [c, d] = sys::socket_pair(sys::SocketType::stream);
  const auto start = Clock::now();
  std::jthread writer([&a] { write_all(a.get(), kData); });
  std::jthread relay([&b, &c] {
    std::string chunk(64 * 1024, '\0');
    for (std::size_t moved = 0; moved < kBytes;) {
      const ssize_t count = recv(b.get(), chunk.data(), chunk.size(), 0);
      if (count <= 0) return;
      write_all(c.get(), chunk.substr(0, static_cast<std::size_t>(count)));
      moved += static_cast<std::size_t>(count);
    }
  });
  std::string chunk(64 * 1024, '\0');
  for (std::size_t got = 0; got < kBytes;) {
    const ssize_t count = recv(d.get(), chunk.data(), chunk.size(), 0);
    if (count <= 0) throw std::runtime_error("a socket hop ended early");
    got += static_cast<std::size_t>(count);
  }
  return since(start);
}

// An interpreter that has started and waits for its program, from when it gets it: no sandbox.
double held_interpreter() {
  const OwnDirectory directory;
  const std::string program = (directory.path() / "program.py").native();
  if (mkfifo(program.c_str(), 0600) < 0) sys::throw_errno("making a pipe");
  const pid_t interpreter = start_process({kPython, program});
  // Returns when the interpreter opens its program, before which it does all else.
  UniqueFd end(open(program.c_str(), O_WRONLY | O_CLOEXEC));
  if (!end) sys::throw_errno("opening a pipe");
  const auto start = Clock::now();
  constexpr std::string_view kProgram = "print(1)\n";
  if (write(end.get(), kProgram.data(), kProgram.size()) < 0) sys::throw_errno("writing to a pipe");
  end.reset();
  reap_process(interpreter, kPython);
  return since(start);
}

Subject spawned(std::string work, std::vector<std::string> argv) {
  Subject subject{.work = std::move(work), .name = "limit", .argv = argv};
  subject.once = [argv = std::move(argv)] { return time_process(argv); };
  return subject;
}

}  // namespace

std::vector<Subject> limit_subjects() {
  sweep_groups();
  std::vector<Subject> subjects;
  subjects.push_back(
      {.work = "cold_true", .name = "limit", .once = [] { return bare_sandbox(true); }});
  subjects.push_back(spawned("warm_true", {"/bin/true"}));
  subjects.push_back(spawned("warm_print", {kPython, "-c", "print(1)"}));
  subjects.push_back({.work = "held_print", .name = "limit", .once = held_interpreter});
  for (const char* work : {"files_in", "files_out"}) {
    subjects.push_back({.work = work, .name = "limit", .once = two_socket_hops});
  }
  subjects.push_back(
      {.work = "create_remove", .name = "limit", .once = [] { return bare_sandbox(false); }});
  subjects.push_back(spawned("cli_start", {"/bin/true"}));
  return subjects;
}

}  // namespace casemate::bench
