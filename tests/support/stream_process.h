#pragma once

// For tests: a guest program as the other end of a multiplexed stream.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/socket.h"

namespace casemate {

// What a stream is: two pipes, as of a process's standard streams, or one socket, as of QEMU's
// serial ports.
enum class StreamForm { pipes, socket };

class StreamProcess {
 public:
  // Starts `program` with the stream as its standard input and output, in `directory`.
  StreamProcess(const std::filesystem::path& program, std::vector<std::string> arguments,
                StreamForm form, const std::string& directory = "/") {
    sys::UniqueFd guest_in;
    sys::UniqueFd guest_out;
    if (form == StreamForm::socket) {
      auto [near, far] = sys::socket_pair(sys::SocketType::stream);
      end_ = guest::StreamEnd::of(std::move(near));
      guest_out.reset(dup(far.get()));
      guest_in = std::move(far);
    } else {
      make_pipe(guest_in, end_.out);
      make_pipe(end_.in, guest_out);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
    posix_spawn_file_actions_adddup2(&actions, guest_in.get(), 0);
    posix_spawn_file_actions_adddup2(&actions, guest_out.get(), 1);
    // Something that the guest was left by whoever started it: no program may see it.
    posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0);
    arguments.insert(arguments.begin(), program.string());
    std::vector<char*> argv;
    for (std::string& word : arguments) argv.push_back(word.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0) << argv[0];
    posix_spawn_file_actions_destroy(&actions);
  }
  StreamProcess(const StreamProcess&) = delete;
  StreamProcess& operator=(const StreamProcess&) = delete;
  // It must end by itself once its stream is over.
  ~StreamProcess() { wait(); }

  // The host's end; once.
  guest::StreamEnd take_end() { return std::move(end_); }
  pid_t pid() const { return pid_; }

  void kill() { ::kill(pid_, SIGKILL); }
  // Its status, as waitpid tells it.
  int wait() {
    if (pid_ > 0) {
      EXPECT_EQ(waitpid(pid_, &status_, 0), pid_);
    }
    pid_ = -1;
    return status_;
  }

 private:
  static void make_pipe(sys::UniqueFd& read_end, sys::UniqueFd& write_end) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }

  guest::StreamEnd end_;
  pid_t pid_ = -1;
  int status_ = 0;
};

// Where the programs of this build are.
inline std::filesystem::path test_programs() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

}  // namespace casemate
