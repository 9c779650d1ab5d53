#pragma once

// For tests: a real guest program behind a real `AgentSandbox`, over plain directories and without
// a boundary (see casemate/guest/agent/plain_place.h). Needs no privileges and runs under
// sanitizers. Build the target `plain_guest` with the test that uses it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "casemate/guest/agent_sandbox.h"
#include "casemate/sys/socket.h"

namespace casemate {

class PlainSandbox {
 public:
  explicit PlainSandbox(guest::AgentTiming timing = {}) {
    // tmpfs, as in a sandbox.
    std::string pattern = "/dev/shm/casemate-XXXXXX";
    root_ = mkdtemp(pattern.data());
    parts_.info.id = "0123456789abcdef";
    parts_.info.backend = "plain";
    parts_.info.work_dir = root_ / "workspace";
    parts_.timing = timing;
    parts_.connect = [this](const CallControl&) { return start_guest(); };
  }
  PlainSandbox(const PlainSandbox&) = delete;
  PlainSandbox& operator=(const PlainSandbox&) = delete;

  // Every guest process must have ended by itself once its calls are gone.
  ~PlainSandbox() {
    sandbox_.reset();
    for (const pid_t pid : guests_) {
      int status = 0;
      EXPECT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFEXITED(status)) << "a guest process died: " << status;
    }
    std::filesystem::remove_all(root_);
  }

  // To be changed before the first use of `sandbox`.
  guest::AgentSandboxParts& parts() { return parts_; }

  Sandbox& sandbox() {
    std::call_once(made_, [this] { sandbox_ = std::make_unique<guest::AgentSandbox>(parts_); });
    return *sandbox_;
  }

  const std::filesystem::path& root() const { return root_; }
  std::string work_dir() const { return parts_.info.work_dir; }
  // The process of the newest call.
  pid_t last_guest() const { return guests_.back(); }

 private:
  sys::UniqueFd start_guest() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    const std::filesystem::path program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "plain_guest";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, far.get(), 3);
    // Something that the guest was left by whoever started it: no program may see it.
    posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0);
    std::string name = program.string();
    std::string root = root_.string();
    std::vector<char*> argv{name.data(), root.data(), nullptr};
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, name.c_str(), &actions, nullptr, argv.data(), environ), 0) << name;
    posix_spawn_file_actions_destroy(&actions);
    const std::lock_guard lock(mutex_);
    guests_.push_back(pid);
    return std::move(near);
  }

  std::filesystem::path root_;
  guest::AgentSandboxParts parts_;
  std::once_flag made_;
  std::unique_ptr<Sandbox> sandbox_;
  std::mutex mutex_;
  std::vector<pid_t> guests_;
};

}  // namespace casemate
