#include "casemate/guest/machine/control_line.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

using sys::UniqueFd;

constexpr std::string_view kGreeting = "{\"QMP\": {\"version\": {}}}\n";
constexpr std::string_view kDone = "{\"return\": {}}\n";

// A hypervisor that says these things, the first at once and one more after each command, and keeps
// the commands.
class Hypervisor {
 public:
  explicit Hypervisor(std::vector<std::string> words) {
    auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
    line_ = std::move(ours);
    thread_ = std::thread([this, socket = std::move(theirs), words = std::move(words)] {
      for (const std::string& word : words) {
        std::size_t sent = 0;
        while (sent < word.size()) {
          const ssize_t count =
              send(socket.get(), word.data() + sent, word.size() - sent, MSG_NOSIGNAL);
          if (count <= 0) return;
          sent += static_cast<std::size_t>(count);
        }
        char byte = 0;
        std::string command;
        while (recv(socket.get(), &byte, 1, 0) == 1 && byte != '\n') command += byte;
        commands_.push_back(command);
      }
    });
  }
  ~Hypervisor() {
    line_.reset();
    thread_.join();
  }
  UniqueFd line() { return std::move(line_); }
  // Once the line was closed.
  const std::vector<std::string>& commands() {
    thread_.join();
    thread_ = std::thread([] {});
    return commands_;
  }

 private:
  UniqueFd line_;
  std::thread thread_;
  std::vector<std::string> commands_;
};

int error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

TEST(ControlLine, SavesByThreeCommandsAndWaitsUntilItIsDone) {
  Hypervisor hypervisor({std::string(kGreeting), std::string(kDone), std::string(kDone),
                         std::string(kDone), std::string(kDone),
                         "{\"return\": {\"status\": \"active\"}}\n",
                         "{\"timestamp\": {}, \"event\": \"STOP\"}\n{\"return\": {\"status\": "
                         "\"completed\"}}\n"});
  {
    ControlLine line(hypervisor.line());
    line.save(0);
  }
  ASSERT_EQ(hypervisor.commands().size(), 7U);
  EXPECT_NE(hypervisor.commands()[1].find("stop"), std::string::npos);
  EXPECT_NE(hypervisor.commands()[3].find("\"fd:saved\""), std::string::npos);
}

TEST(ControlLine, ARefusedCommandSaysWhatWasRefused) {
  Hypervisor hypervisor({std::string(kGreeting), std::string(kDone),
                         "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n"});
  ControlLine line(hypervisor.line());
  try {
    line.go_on();
    FAIL() << "it was done";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EREMOTEIO);
    EXPECT_NE(std::string(error.what()).find("cont"), std::string::npos);
  }
}

TEST(ControlLine, AFailedSaveIsNoSave) {
  Hypervisor hypervisor({std::string(kGreeting), std::string(kDone), std::string(kDone),
                         std::string(kDone), std::string(kDone),
                         "{\"return\": {\"status\": \"failed\"}}\n"});
  ControlLine line(hypervisor.line());
  EXPECT_EQ(error_of([&] { line.save(0); }), EREMOTEIO);
}

TEST(ControlLine, WhatIsNoAnswerIsRefusedAndBounded) {
  for (const std::string& words :
       {std::string("hello\n"), std::string("\0\0\n", 3), std::string(70 * 1024, 'x') + "\n"}) {
    Hypervisor hypervisor({words});
    EXPECT_EQ(error_of([&] { ControlLine line(hypervisor.line()); }), EPROTO);
  }
  std::string events;
  for (int i = 0; i < 20'000; ++i) events += "{\"timestamp\": {}, \"event\": \"RESET\"}\n";
  Hypervisor endless({std::string(kGreeting), events});
  EXPECT_EQ(error_of([&] { ControlLine line(endless.line()); }), EPROTO);
  Hypervisor hypervisor({std::string(kGreeting), "[1]\n"});
  EXPECT_EQ(error_of([&] { ControlLine line(hypervisor.line()); }), EPROTO);
}

TEST(ControlLine, OneThatHangsUpIsGone) {
  auto [ours, theirs] = sys::socket_pair(sys::SocketType::stream);
  theirs.reset();
  UniqueFd socket = std::move(ours);
  EXPECT_EQ(error_of([&] { ControlLine line(std::move(socket)); }), EPIPE);
}

}  // namespace
}  // namespace casemate::guest
