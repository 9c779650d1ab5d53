#include "casemate/images/registry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stop_token>
#include <utility>
#include <vector>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

constexpr char kLogName[] = "skopeo.log";
constexpr std::size_t kShownLogBytes = 600;

void check(int error, const char* what) {
  if (error != 0) sys::throw_error(error, what);
}

class FileActions {
 public:
  FileActions() { check(posix_spawn_file_actions_init(&actions_), "starting skopeo"); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

class Attributes {
 public:
  Attributes() { check(posix_spawnattr_init(&attributes_), "starting skopeo"); }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t* get() { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

// A process of its own group, which ends, group and all, with this.
class Child {
 public:
  Child(const std::string& program, const std::vector<std::string>& words, int directory, int log) {
    FileActions actions;
    check(posix_spawn_file_actions_addfchdir_np(actions.get(), directory), "starting skopeo");
    check(posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0),
          "starting skopeo");
    check(posix_spawn_file_actions_adddup2(actions.get(), log, 1), "starting skopeo");
    check(posix_spawn_file_actions_adddup2(actions.get(), log, 2), "starting skopeo");
    Attributes attributes;
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    check(posix_spawnattr_setsigmask(attributes.get(), &none), "starting skopeo");
    check(posix_spawnattr_setsigdefault(attributes.get(), &all), "starting skopeo");
    check(posix_spawnattr_setpgroup(attributes.get(), 0), "starting skopeo");
    check(
        posix_spawnattr_setflags(attributes.get(), POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETPGROUP),
        "starting skopeo");
    std::vector<std::string> copies = words;
    std::vector<char*> argv;
    for (std::string& word : copies) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error =
        posix_spawnp(&pid_, program.c_str(), actions.get(), attributes.get(), argv.data(), environ);
    if (error == ENOENT) {
      throw SandboxImageNotSupported(
          fmt::format("an image of a registry is fetched by skopeo, and there is no '{}' here",
                      escape_for_display(program)),
          "install it (Debian: apt install skopeo), or import what another machine wrote, as "
          "oci:PATH or docker-archive:PATH");
    }
    check(error, "starting skopeo");
    process_ = sys::open_pid(pid_);
  }

  ~Child() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int process() const { return process_.get(); }

  // Its exit status once it has ended.
  int status() {
    int status = 0;
    while (waitpid(std::exchange(pid_, -1), &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  UniqueFd process_;
};

std::string end_of(const std::string& log) {
  const std::size_t from = log.size() > kShownLogBytes ? log.size() - kShownLogBytes : 0;
  std::string_view text = std::string_view(log).substr(from);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return escape_for_display(text, 2 * kShownLogBytes);
}

}  // namespace

void fetch_from_registry(const std::string& skopeo, const ImageReference& reference, int directory,
                         const std::string& name, const CallControl& control) {
  const UniqueFd log =
      sys::open_at(directory, kLogName, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, 0600);
  const UniqueFd stopped = sys::make_event();
  const std::stop_callback on_stop(control.stop, [&stopped] { sys::raise_event(stopped.get()); });
  Child child(skopeo,
              {"skopeo", "copy", "--quiet", "--override-os", "linux", "docker://" + reference.text,
               fmt::format("oci:{}:{}", name, kDownloadTag)},
              directory, log.get());
  std::array<pollfd, 2> entries = {pollfd{stopped.get(), POLLIN, 0},
                                   pollfd{child.process(), POLLIN, 0}};
  const int ready = sys::poll_until(entries, control.deadline);
  if (entries[0].revents != 0) throw SandboxCancelled("cancelled while fetching an image");
  if (ready == 0) {
    throw SandboxTimeout("the deadline came while an image was fetched",
                         "import it first: `casemate image import`");
  }
  if (const int status = child.status(); status != 0) {
    const std::string said = sys::read_file_if_there(directory, kLogName, 1 << 20).value_or("");
    throw SandboxUnavailable(fmt::format("skopeo could not fetch '{}' (exit {}): {}",
                                         reference.text, status, end_of(said)),
                             "see `man skopeo-copy`; `skopeo login` for a private registry");
  }
}

}  // namespace casemate::images
