#include "casemate/local/warm_stock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/lying_guest_test.h"
#include "casemate/guest/ready_call.h"
#include "casemate/sys/socket.h"

namespace casemate::local {
namespace {

using namespace std::chrono_literals;

// Of calls that hold no program: as if each had been killed as soon as it was there.
class WarmStockOfTheKilled : public ::testing::Test {
 protected:
  static constexpr std::size_t kSandboxes = 1;
  static constexpr std::size_t kPrograms = 2;
  // Of what has an end it is soon.
  static constexpr int kWithoutEnd = 200;

  WarmStockOfTheKilled()
      : parts_(std::make_shared<guest::AgentSandboxParts>()),
        stock_({.spec = {},
                .sandboxes = kSandboxes,
                .program = ExpectedProgram{.interpreter = "sh", .path = "main", .environment = {}},
                .programs = kPrograms},
               {.prepare = [](const std::stop_token&) {},
                .sandbox = [this](const std::stop_token&) { return make_sandbox(); },
                .program = [this](const auto&) { return make_program(); }},
               [this](LogLevel, std::string_view text) { logged_.emplace_back(text); }) {
    parts_->connect = [this](const CallControl&) { return guest_.connect(); };
  }

  WarmStock::Ready make_sandbox() {
    auto [near, far] = sys::socket_pair(sys::SocketType::stream);
    far_end_ = std::move(far);
    auto sandbox = std::make_shared<HeldSandbox>();
    sandbox->record.id = "one";
    sandbox->lease = std::move(near);
    return {.digest = "digest", .sandbox = std::move(sandbox)};
  }
  std::unique_ptr<guest::AgentCall> make_program() {
    // Then the test fails, and ends all the same.
    if (++made_ >= kWithoutEnd) throw std::runtime_error("made without end");
    return std::make_unique<guest::AgentCall>(
        guest::ask_for_call({.id = "call"}, *parts_, guest::CallUse::later, {}), parts_,
        CallControl{});
  }

  guest::FakeGuest guest_;
  std::shared_ptr<guest::AgentSandboxParts> parts_;
  sys::UniqueFd far_end_;
  std::atomic<int> made_ = 0;
  std::vector<std::string> logged_;
  WarmStock stock_;
};

TEST_F(WarmStockOfTheKilled, RestsAndSaysSoOnceUntilSomebodyWishesAgain) {
  CallControl control;
  control.deadline = std::chrono::steady_clock::now() + 60s;
  EXPECT_FALSE(stock_.wait_until_full(control));
  const int first = made_;
  EXPECT_GE(first, 2);
  EXPECT_LT(first, kWithoutEnd);
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_NE(logged_[0].find("memory"), std::string::npos) << logged_[0];
  // It is what came of the last wish, and no other.
  EXPECT_FALSE(stock_.wait_until_full(control));
  EXPECT_EQ(made_, first);
  EXPECT_TRUE(stock_.take_sandbox("").sandbox);
  EXPECT_FALSE(stock_.wait_until_full(control));
  EXPECT_GT(made_, first);
  EXPECT_LT(made_, kWithoutEnd);
}

}  // namespace
}  // namespace casemate::local
