#include "casemate/guest/agent/plain_place.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>

#include "casemate/guest/agent/descendants.h"
#include "casemate/guest/agent/remove_tree.h"
#include "casemate/sys/error.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

void make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0) sys::throw_errno("mkdir " + path);
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
