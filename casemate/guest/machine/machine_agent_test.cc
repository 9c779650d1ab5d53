#include "casemate/guest/machine/machine_agent.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "casemate/guest/agent/agent.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/machine/machine_plan.h"
#include "casemate/guest/machine/silent_machine_test.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/process.h"
#include "casemate/sys/socket.h"
#include "tests/support/processor_time.h"
#include "tests/support/scratch.h"

namespace casemate::guest {
namespace {

sys::UniqueFd bound_socket(const std::filesystem::path& path) {
  sys::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// The process may have no descriptor above those that it has.
void leave_few_descriptors(pid_t pid) {
  unsigned long highest = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    highest = std::max(highest, std::stoul(entry.path().filename()));
  }
  const rlimit files{.rlim_cur = highest + 1, .rlim_max = highest + 1};
  EXPECT_EQ(prlimit(pid, RLIMIT_NOFILE, &files, nullptr), 0);
}

bool is_readable(const sys::UniqueFd& descriptor) {
  std::array<pollfd, 1> entries{pollfd{descriptor.get(), POLLIN, 0}};
  return sys::poll_until(entries, std::chrono::steady_clock::now() + std::chrono::seconds(30)) == 1;
}

class MachineAgent : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "the process that keeps a machine is root, somewhere";
    put(scratch_ / kMachinePlanName, encode(silent_machine()));
    auto [status, agents] = sys::socket_pair(sys::SocketType::seqpacket);
    auto [lease, agents_lease] = sys::socket_pair(sys::SocketType::stream);
    lease_ = std::move(lease);
    const sys::UniqueFd self = sys::open_pid(getpid());
    pid_ = sys::clone_process(CLONE_NEWPID);
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      run_machine_agent({.request = {},
                         .directory = sys::open_at(AT_FDCWD, scratch_.path().c_str(), O_PATH),
                         .agent_socket = bound_socket(scratch_ / kAgentSocketName),
                         .lease_socket = bound_socket(scratch_ / kLeaseSocketName),
                         .first_lease = std::move(agents_lease),
                         .status = std::move(agents),
                         .keeper = sys::UniqueFd(fcntl(self.get(), F_DUPFD_CLOEXEC, 0)),
                         .image = {},
                         .ids = {.first_user = 0x70000000U, .first_group = 0x70000000U},
                         .groups = {}});
    }
    agents.reset();
    EXPECT_TRUE(is_readable(status));
    AgentReport report{};
    EXPECT_EQ(recv(status.get(), &report, sizeof report, MSG_DONTWAIT),
              static_cast<ssize_t>(sizeof report));
    EXPECT_EQ(report.error, 0) << report.text;
  }
  void TearDown() override {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  }
  sys::UniqueFd connect() const {
    return sys::connect_to_address((scratch_ / kAgentSocketName).native());
  }
  pid_t pid() const { return pid_; }

 private:
  const Scratch scratch_;
  sys::UniqueFd lease_;
  pid_t pid_ = -1;
};

TEST_F(MachineAgent, TurnsAConnectionAwayThatItHasNoDescriptorFor) {
  leave_few_descriptors(pid());
  std::vector<sys::UniqueFd> connections;
  std::vector<pollfd> entries;
  for (int i = 0; i < 64; ++i) {
    connections.push_back(connect());
    entries.push_back({.fd = connections.back().get(), .events = POLLIN, .revents = 0});
  }
  // The last one, so that those before were turned away or carried.
  EXPECT_TRUE(is_readable(connections.back()));
  EXPECT_GT(sys::poll_until(entries, std::chrono::steady_clock::now()), 32);
}

TEST_F(MachineAgent, DoesNotSpinOverAConnectionThatItCannotEvenTurnAway) {
  const rlimit none{.rlim_cur = 3, .rlim_max = 3};
  ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  const sys::UniqueFd waiting = connect();
  const auto before = processor_time(pid());
  let_pass(kSpinWatch);
  EXPECT_LT(processor_time(pid()) - before, kNoSpin);
}

}  // namespace
}  // namespace casemate::guest
