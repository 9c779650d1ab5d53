#include "casemate/guest/agent/plain_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "casemate/guest/agent/remove_tree.h"
#include "casemate/sys/error.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

struct CloseDirectory {
  void operator()(DIR* stream) const { closedir(stream); }
};

// Parent of each process there is.
std::map<pid_t, pid_t> all_parents() {
  std::map<pid_t, pid_t> parents;
  const std::unique_ptr<DIR, CloseDirectory> proc(opendir("/proc"));
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    // "pid (name) state parent ...", and the name may hold anything.
    const std::size_t after_name = text.rfind(')');
    if (after_name == std::string::npos || after_name + 4 >= text.size()) continue;
    parents[pid] = std::atoi(text.c_str() + after_name + 4);
  }
  return parents;
}

void kill_descendants() {
  const pid_t self = getpid();
  const std::map<pid_t, pid_t> parents = all_parents();
  for (const auto& [pid, parent] : parents) {
    pid_t above = parent;
    while (above != self && above > 1 && parents.contains(above)) above = parents.at(above);
    if (above == self) kill(pid, SIGKILL);
  }
}

void make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0) sys::throw_errno("mkdir " + path);
}

void become_subreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) sys::throw_errno("PR_SET_CHILD_SUBREAPER");
}

}  // namespace

PlainPlace::PlainPlace(const std::string& root) : work_dir_(root + "/workspace") {
  if (mkdir(work_dir_.c_str(), 0755) != 0 && errno != EEXIST) sys::throw_errno("mkdir");
}

void PlainPlace::open_call_scope(std::string_view id, HostSockets sockets) {
  become_subreaper();
  const std::string directory = work_dir_ + "/" + std::string(id);
  make_directory(directory);
  make_directory(directory + "/work");
  if (sockets == HostSockets::yes) make_directory(directory + "/host");
}

std::string PlainPlace::socket_directory(std::string_view id) const {
  return work_dir_ + "/" + std::string(id) + "/host";
}

bool PlainPlace::close_call_scope(std::string_view id) noexcept {
  const sys::UniqueFd directory(open(work_dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return directory && remove_tree(directory.get(), std::string(id)) == 0;
}

pid_t PlainPlace::clone_exec_init() { return fork(); }

bool PlainPlace::end_leftovers() noexcept {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < until) {
    kill_exec_scope();
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) return true;
  }
  return false;
}

void PlainPlace::enter_exec_scope() { become_subreaper(); }

void PlainPlace::kill_exec_scope() noexcept try {
  kill_descendants();
} catch (const std::exception&) {
  // Out of memory: the caller comes again while it has children.
}

int PlainPlace::confine_program() noexcept {
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
}

}  // namespace casemate::guest
