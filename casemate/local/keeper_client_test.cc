#include "casemate/local/keeper_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/guest/machine/silent_machine_test.h"
#include "casemate/local/keeper_connection.h"
#include "casemate/sys/file.h"
#include "casemate/sys/socket.h"
#include "tests/support/directory_events.h"
#include "tests/support/scratch.h"

namespace casemate::local {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// With the keeper of virtual machines, whose hypervisor is whatever a directory says.
class KeeperClientTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "machines are kept by root, somewhere";
  }
  KeptBy create(const std::string& name, const guest::MachinePlan& plan,
                const CallControl& control) {
    put(scratch_ / name / guest::kMachinePlanName, guest::encode(plan));
    const sys::UniqueFd directory = sys::open_at(AT_FDCWD, (scratch_ / name).c_str(), O_PATH);
    auto [lease, sandboxes_end] = sys::socket_pair(sys::SocketType::stream);
    guest::CreateSandbox request{};
    std::strcpy(request.id, "0011");
    std::strcpy(request.work_dir, "/workspace");
    const int descriptors[] = {directory.get(), sandboxes_end.get()};
    KeptBy kept = keeper_.create(request, descriptors, control);
    const std::lock_guard lock(mutex_);
    leases_.push_back(std::move(lease));
    return kept;
  }
  // By the keeper, before it starts a machine.
  bool was_begun(const std::string& name) const {
    return wait_for_events(scratch_ / name, IN_CREATE,
                           [&] { return fs::exists(scratch_ / name / guest::kAgentSocketName); });
  }
  static CallControl within(seconds bound) {
    CallControl control;
    control.deadline = std::chrono::steady_clock::now() + bound;
    return control;
  }

  Scratch scratch_;
  std::mutex mutex_;
  std::vector<sys::UniqueFd> leases_;
  std::string role_ = "machine-keeper";
  KeeperClient keeper_{[this] { return std::vector<std::string>{role_}; },
                       KeeperClient::Starts::side_by_side, seconds(120)};
};

TEST_F(KeeperClientTest, AHypervisorThatHangsAsItStartsHoldsUpNobodyElse) {
  for (const char* name : {"hangs", "runs", "fails"}) fs::create_directory(scratch_ / name);
  std::atomic<bool> was_cancelled = false;
  std::jthread hanging([&](const std::stop_token& stop) {
    CallControl control;
    control.stop = stop;
    try {
      create("hangs", {.program = "/usr/bin/tail", .arguments = {"-f", "/dev/null"}}, control);
    } catch (const SandboxCancelled&) {
      was_cancelled = true;
    }
  });
  ASSERT_TRUE(was_begun("hangs"));
  const KeptBy kept = create("runs", guest::silent_machine(), within(seconds(20)));
  EXPECT_THROW(create("fails", {.program = "/usr/bin/none"}, within(seconds(20))),
               SandboxUnavailable);
  EXPECT_TRUE(keeper_.give_up(kept));
  EXPECT_FALSE(fs::exists(scratch_ / "runs"));
  EXPECT_FALSE(was_cancelled);
  hanging.request_stop();
  hanging.join();
  EXPECT_TRUE(was_cancelled);
  EXPECT_FALSE(fs::exists(scratch_ / "hangs")) << "its end was not waited for";
}

// Each answer finds who waits for it, whoever reads.
TEST_F(KeeperClientTest, ManyAreMadeAndGivenUpAtATime) {
  std::vector<std::jthread> threads;
  std::atomic<int> made = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string name = std::to_string(i);
    fs::create_directory(scratch_ / name);
    threads.emplace_back([this, name, i, &made] {
      const bool fails = i % 2 == 1;
      guest::MachinePlan plan = guest::silent_machine();
      if (fails) plan.program = "/usr/bin/none";
      try {
        const KeptBy kept = create(name, plan, within(seconds(60)));
        EXPECT_FALSE(fails);
        ++made;
        EXPECT_TRUE(keeper_.give_up(kept));
        EXPECT_FALSE(fs::exists(scratch_ / name));
      } catch (const SandboxUnavailable& refusal) {
        EXPECT_TRUE(fails) << refusal.message();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(made, 4);
}

// No other knows what its number means.
TEST_F(KeeperClientTest, WhatAFormerKeeperMadeIsGivenUpToThatOne) {
  fs::create_directory(scratch_ / "runs");
  const KeptBy kept = create("runs", guest::silent_machine(), within(seconds(20)));
  role_ = "keeper";
  keeper_.start_ahead();
  EXPECT_TRUE(keeper_.give_up(kept));
  EXPECT_FALSE(fs::exists(scratch_ / "runs"));
}

TEST(KeeperConnectionTest, OneThatSaysNothingIsNotWaitedForForEver) {
  auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
  KeeperConnection keeper(std::move(ours), std::chrono::milliseconds(1));
  KeeperConnection::Waiting first(keeper, 1);
  KeeperConnection::Waiting second(keeper, 2);
  // Both, of whom one reads for the other.
  std::jthread other([&] { EXPECT_THROW(second.receive({}), SandboxTimeout); });
  EXPECT_THROW(first.receive({}), SandboxTimeout);
}

TEST(KeeperConnectionTest, OneThatReadsNothingIsNotWrittenToForEver) {
  auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
  KeeperConnection keeper(std::move(ours), std::chrono::milliseconds(1));
  const std::string message(1000, 'x');
  const auto fill = [&] {
    for (int i = 0; i < 100'000; ++i) keeper.send(message, {}, {});
  };
  EXPECT_THROW(fill(), SandboxTimeout);
  EXPECT_TRUE(keeper.is_silent());
  CallControl late;
  late.deadline = std::chrono::steady_clock::now();
  EXPECT_THROW(keeper.send(message, {}, late), SandboxTimeout);
  std::stop_source stop;
  stop.request_stop();
  KeeperConnection patient(sys::duplicate(keepers.get()), seconds(120));
  const auto fill_too = [&] {
    CallControl stopped;
    stopped.stop = stop.get_token();
    for (int i = 0; i < 100'000; ++i) patient.send(message, {}, stopped);
  };
  EXPECT_THROW(fill_too(), SandboxCancelled);
}

TEST(KeeperConnectionTest, OneThatSaysAnythingIsSilentNoMore) {
  auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
  KeeperConnection keeper(std::move(ours), std::chrono::milliseconds(1));
  KeeperConnection::Waiting one(keeper, 1);
  EXPECT_FALSE(keeper.is_silent());
  EXPECT_THROW(one.receive({}), SandboxTimeout);
  EXPECT_TRUE(keeper.is_silent());
  guest::KeeperAnswer answer{};
  answer.number = 1;
  ASSERT_TRUE(sys::try_send_value(keepers.get(), answer));
  EXPECT_EQ(one.receive({}).number, 1U);
  EXPECT_FALSE(keeper.is_silent());
}

TEST(KeeperConnectionTest, OneThatAnswersAnybodyIsWaitedFor) {
  auto [ours, keepers] = sys::socket_pair(sys::SocketType::seqpacket);
  KeeperConnection keeper(std::move(ours), seconds(120));
  KeeperConnection::Waiting one(keeper, 1);
  guest::KeeperAnswer answer{};
  for (const std::uint64_t number : {7, 1}) {
    answer.number = number;
    ASSERT_TRUE(sys::try_send_value(keepers.get(), answer));
  }
  EXPECT_EQ(one.receive({}).number, 1U);
}

}  // namespace
}  // namespace casemate::local
