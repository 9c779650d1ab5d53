// The keeper against a host that talks nonsense, and that the program does nothing on its own.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/guest/agent/guest_program.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/without_call_test.h"
#include "tests/linux/linux_test.h"
#include "tests/support/scratch.h"

namespace casemate::linux_tests {
namespace {

using guest::CreateSandbox;
using guest::KeeperAnswer;

class Keeper : public testing::Test {
 protected:
  void SetUp() override { start(); }

  void start() {
    auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
    const sys::UniqueFd program = guest::make_guest_program_file();
    const pid_t child = fork();
    if (child == 0) {
      dup2(keepers.get(), 3);
      execl(("/proc/self/fd/" + std::to_string(program.get())).c_str(), "casemate-guest", "keeper",
            nullptr);
      _exit(127);
    }
    host_ = std::move(ours);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }

  KeeperAnswer ask(const void* bytes, std::size_t size, std::span<const int> descriptors = {}) {
    sys::send_message(host_.get(), {static_cast<const char*>(bytes), size}, descriptors,
                      sys::Blocking::yes);
    pollfd entry{.fd = host_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(
        sys::poll_until({&entry, 1}, std::chrono::steady_clock::now() + std::chrono::seconds(20)),
        1);
    KeeperAnswer answer{};
    EXPECT_EQ(recv(host_.get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
    return answer;
  }

  sys::UniqueFd host_;
};

CreateSandbox request() {
  CreateSandbox value{};
  value.number = 5;
  std::strcpy(value.id, "0011223344556677");
  std::strcpy(value.work_dir, "/workspace");
  return value;
}

TEST_F(Keeper, RefusesWhatItDoesNotUnderstandAndGoesOn) {
  EXPECT_EQ(ask("?", 1).error, EPROTO);
  CreateSandbox value = request();
  EXPECT_EQ(ask(&value, sizeof value).error, EPROTO) << "no directory came with it";
  const sys::UniqueFd directory(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(ask(&value, sizeof value, std::array{directory.get()}).error, EPROTO)
      << "no first lease came with it";
  value = request();
  std::memset(value.id, 'x', sizeof value.id);
  EXPECT_EQ(ask(&value, sizeof value).error, EPROTO) << "an id without an end";
  value = request();
  value.control_groups = guest::kMaxControlGroups + 1;
  EXPECT_EQ(ask(&value, sizeof value).error, EPROTO);
  const std::string large(sizeof value + 1, '\0');
  EXPECT_EQ(ask(large.data(), large.size()).error, EPROTO);
  EXPECT_EQ(ask(&value, sizeof value).number, 5U);
}

// The keeper of a test becomes a child of this process, which can wait for its end.
class KeeperThatIsWaitedFor : public Keeper {
 protected:
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }
};

TEST_F(KeeperThatIsWaitedFor, LeavesNothingOfASandboxWhoseEndItCouldNotHear) {
  const std::vector<pid_t> before = children_of(getpid());
  // Its own descriptors, the first of which it waits for, are below 8, and a sandbox's above.
  sys::without_call(SYS_epoll_ctl, ENOMEM, 8,
                    [&] { sys::without_call(SYS_epoll_ctl, ENOMEM, 16, [&] { start(); }); });
  std::vector<pid_t> keepers = children_of(getpid());
  std::erase_if(keepers, [&](pid_t child) { return std::ranges::count(before, child) != 0; });
  ASSERT_EQ(keepers.size(), 1U);
  const Scratch scratch;
  const std::filesystem::path place = scratch / "sandbox";
  std::filesystem::create_directory(place);
  const sys::UniqueFd directory(open(place.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  auto [lease, sandboxes_end] = sys::socket_pair(sys::SocketType::stream);
  CreateSandbox value = request();
  const KeeperAnswer answer =
      ask(&value, sizeof value, std::array{directory.get(), sandboxes_end.get()});
  EXPECT_EQ(answer.error, ENOMEM) << answer.text;
  EXPECT_EQ(children_of(keepers[0]), std::vector<pid_t>{}) << "nobody reaped it";
  EXPECT_FALSE(std::filesystem::exists(place));
  const guest::GiveUpSandbox nobody_wants_it{.number = value.number};
  EXPECT_EQ(ask(&nobody_wants_it, sizeof nobody_wants_it).error, ECANCELED);
  host_.reset();
  EXPECT_TRUE(wait_until_gone(keepers[0])) << "it waits for the end of what has ended";
  kill(keepers[0], SIGKILL);
  waitpid(keepers[0], nullptr, 0);
}

TEST(GuestProgram, DoesNothingWhenItIsStartedByHand) {
  const sys::UniqueFd program = guest::make_guest_program_file();
  const pid_t child = fork();
  if (child == 0) {
    close(2);
    execl(("/proc/self/fd/" + std::to_string(program.get())).c_str(), "casemate-guest", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST(GuestProgram, IsSealedAndHasABuildId) {
  const sys::UniqueFd program = guest::make_guest_program_file();
  EXPECT_EQ(pwrite(program.get(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(program.get(), 0), -1);
  const std::span<const char> bytes = guest::guest_program();
  EXPECT_EQ(guest::guest_build_id(), sha256_hex({bytes.data(), bytes.size()}));
}

}  // namespace
}  // namespace casemate::linux_tests
