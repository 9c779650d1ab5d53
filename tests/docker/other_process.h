#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::docker_tests {

// Another host process: a fork that runs `body` once it is told to go, says what that returns, and
// ends without any destructor when it is told again.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<std::string()>& body) {
    auto [ours, theirs] = sys::socket_pair(sys::SocketType::seqpacket);
    pid_ = fork();
    if (pid_ == 0) {
      ours.reset();
      hear(theirs.get());
      std::string said;
      try {
        said = body();
      } catch (const std::exception& error) {
        said = std::string("failed: ") + error.what();
      }
      say(theirs.get(), said);
      hear(theirs.get());
      _exit(0);
    }
    channel_ = std::move(ours);
  }
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  pid_t pid() const { return pid_; }
  void go() const { say(channel_.get(), "go"); }
  // Empty when it was killed.
  std::string hear() const { return hear(channel_.get()); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  static void say(int channel, const std::string& text) {
    static_cast<void>(send(channel, text.data(), text.size(), MSG_NOSIGNAL));
  }
  static std::string hear(int channel) {
    char text[1024];
    const ssize_t count = read(channel, text, sizeof text);
    return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : "";
  }

  pid_t pid_ = -1;
  sys::UniqueFd channel_;
};

}  // namespace casemate::docker_tests
