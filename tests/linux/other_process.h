#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::linux_tests {

// Another host process: a fork that runs `body` with a channel to this one, and ends without any
// destructor.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(int channel)>& body) {
    auto [ours, theirs] = sys::socket_pair(sys::SocketType::seqpacket);
    pid_ = fork();
    if (pid_ == 0) {
      ours.reset();
      int status = 1;
      try {
        body(theirs.get());
        status = 0;
      } catch (const std::exception& error) {
        say(theirs.get(), std::string("failed: ") + error.what());
      }
      _exit(status);
    }
    channel_ = std::move(ours);
  }
  ~OtherProcess() {
    if (pid_ > 0) end();
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  static void say(int channel, const std::string& text) {
    ASSERT_EQ(write(channel, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Empty when the other one ended.
  static std::string hear(int channel) {
    char text[1024];
    const ssize_t count = read(channel, text, sizeof text);
    return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : "";
  }
  std::string hear() const { return hear(channel_.get()); }
  void say(const std::string& text) const { say(channel_.get(), text); }
  pid_t pid() const { return pid_; }
  void end() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  bool ended_well() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_ = -1;
  sys::UniqueFd channel_;
};

}  // namespace casemate::linux_tests
