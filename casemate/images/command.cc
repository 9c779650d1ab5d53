#include "casemate/images/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <stop_token>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/sys/error.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

// As often as a person sees.
constexpr std::chrono::milliseconds kBetweenLooks{100};

void check(int error, const char* what) {
  if (error != 0) sys::throw_error(error, what);
}

class FileActions {
 public:
  FileActions() { check(posix_spawn_file_actions_init(&actions_), "starting a command"); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

class Attributes {
 public:
  Attributes() { check(posix_spawnattr_init(&attributes_), "starting a command"); }
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
  explicit Child(const Command& command) {
    FileActions actions;
    check(posix_spawn_file_actions_addfchdir_np(actions.get(), command.directory),
          "starting a command");
    check(posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0),
          "starting a command");
    check(posix_spawn_file_actions_adddup2(actions.get(), command.log, 1), "starting a command");
    check(posix_spawn_file_actions_adddup2(actions.get(), command.log, 2), "starting a command");
    if (command.file >= 0) {
      check(posix_spawn_file_actions_adddup2(actions.get(), command.file, kFileNumber),
            "starting a command");
    }
    Attributes attributes;
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    check(posix_spawnattr_setsigmask(attributes.get(), &none), "starting a command");
    check(posix_spawnattr_setsigdefault(attributes.get(), &all), "starting a command");
    check(posix_spawnattr_setpgroup(attributes.get(), 0), "starting a command");
    check(
        posix_spawnattr_setflags(attributes.get(), POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETPGROUP),
        "starting a command");
    std::vector<std::string> copies = command.words;
    std::vector<char*> argv;
    for (std::string& word : copies) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error = posix_spawnp(&pid_, command.program.c_str(), actions.get(), attributes.get(),
                                   argv.data(), environ);
    check(error, "starting a command");
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
    const pid_t pid = std::exchange(pid_, -1);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  UniqueFd process_;
};

}  // namespace

int run_command(const Command& command, const CallControl& control) {
  const UniqueFd stopped = sys::make_event();
  const std::stop_callback on_stop(control.stop, [&stopped] { sys::raise_event(stopped.get()); });
  Child child(command);
  std::array<pollfd, 3> entries = {pollfd{stopped.get(), POLLIN, 0},
                                   pollfd{child.process(), POLLIN, 0},
                                   pollfd{command.events, POLLIN, 0}};
  // When events are taken again, after those that were.
  std::optional<sys::SteadyTime> rested;
  while (true) {
    entries[2].fd = rested ? -1 : command.events;
    const bool rests = rested && (!control.deadline || *rested < *control.deadline);
    const int ready = sys::poll_until(entries, rests ? rested : control.deadline);
    if (entries[0].revents != 0) {
      throw SandboxCancelled(fmt::format("cancelled while {}", command.what));
    }
    if (entries[1].revents != 0) return child.status();
    if (ready != 0) {
      command.look();
      rested = std::chrono::steady_clock::now() + kBetweenLooks;
    } else if (rests) {
      rested.reset();
    } else {
      throw SandboxTimeout(fmt::format("the deadline came while {}", command.what),
                           std::string(command.late_hint));
    }
  }
}

}  // namespace casemate::images
