// Connections of a run's socket: how many there may be, and which is ended for another.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/channel_frame.h"
#include "casemate/host_tools/channel_served_test.h"
#include "casemate/host_tools/tools_test.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/no_throw.h"

namespace casemate {
namespace {

using std::chrono::milliseconds;

TEST(HostToolChannel, CallersThatVanishFromAFunctionThatDoesNotComeBackLeaveNoConnection) {
  Gate gate;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  stuck.timeout = milliseconds(500);
  HostTool held = stuck;
  held.name = "held";
  held.timeout.reset();
  Served served({echo(), stuck, held});
  constexpr int kAtOnce = 32;
  for (int i = 0; i < kAtOnce; ++i) {
    ChannelClient(served.address).send(channel_request(kWaits | 1, "stuck", "{}"));
  }
  gate.await(kAtOnce);
  // Those that stay have a call under way, so that none of them has to make room.
  std::vector<std::unique_ptr<ChannelClient>> stay;
  for (std::size_t i = kAtOnce; i < kMaxChannelConnections; ++i) {
    stay.push_back(std::make_unique<ChannelClient>(served.address));
    stay.back()->send(channel_request(kWaits | 1, "held", "{}"));
  }
  // Answered without a function, all of which are taken.
  while (ChannelClient(served.address).call("none", "{}") !=
         "Error: there is no host tool 'none'.") {
  }
  gate.open();
}

// A tool that is held at `gate`.
HostTool held_at(Gate& gate) {
  return tool_of("slow", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
}

TEST(HostToolChannel, TellsTheConnectionThatIsOneTooMany) {
  Gate gate;
  Served served({echo(), held_at(gate)}, roomy());
  std::vector<std::unique_ptr<ChannelClient>> clients;
  for (std::size_t i = 0; i < kMaxChannelConnections; ++i) {
    clients.push_back(std::make_unique<ChannelClient>(served.address));
    // In the function, or waiting for others to come back from it.
    clients.back()->send(channel_request(kWaits | 1, "slow", "{}"));
  }
  while (served.run.counters().dispatched < kMaxChannelConnections) std::this_thread::yield();
  ChannelClient one_more(served.address);
  const auto answer = one_more.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->id, 0U);
  EXPECT_EQ(answer->text, "Error: the host takes 64 connections of a run at a time.");
  EXPECT_FALSE(one_more.receive());
  clients.pop_back();
  gate.open();
  // The host notices the end by itself; until then the answer is the same.
  while (ChannelClient(served.address).call("echo", "{}") != "{}") {
  }
  for (const auto& client : clients) EXPECT_EQ(client->receive()->text, "1");
}

TEST(HostToolChannel, ForOneMoreCallerTheLongestIdleConnectionIsEnded) {
  Served served({echo()});
  std::vector<std::unique_ptr<ChannelClient>> clients;
  for (std::size_t i = 0; i < kMaxChannelConnections; ++i) {
    clients.push_back(std::make_unique<ChannelClient>(served.address));
    EXPECT_EQ(clients.back()->call("echo", "{}"), "{}");
  }
  EXPECT_EQ(clients[0]->call("echo", "{}"), "{}");
  ChannelClient one_more(served.address);
  EXPECT_EQ(one_more.call("echo", "{}"), "{}");
  const auto goodbye = clients[1]->receive();
  ASSERT_TRUE(goodbye);
  EXPECT_EQ(goodbye->id, 0U);
  EXPECT_EQ(goodbye->kind, 2);
  EXPECT_EQ(goodbye->text, "Error: the connection was needed for another caller.");
  EXPECT_FALSE(clients[1]->receive());
  clients.erase(clients.begin() + 1);
  for (const auto& client : clients) EXPECT_EQ(client->call("echo", "{}"), "{}");
  EXPECT_EQ(one_more.call("echo", "{}"), "{}");
}

const std::string kWhole = channel_request(1, "echo", "{}");

// As many callers as there may be, each with a call that was answered and a part of another one,
// also less than its length. Both came together, so the host knows of the part.
std::vector<std::unique_ptr<ChannelClient>> half_senders(const Served& served) {
  std::vector<std::unique_ptr<ChannelClient>> clients;
  for (std::size_t i = 0; i < kMaxChannelConnections; ++i) {
    clients.push_back(std::make_unique<ChannelClient>(served.address));
    clients.back()->send(kWhole + kWhole.substr(0, 1 + i % (kWhole.size() - 1)));
    EXPECT_EQ(clients.back()->receive()->text, "{}");
  }
  return clients;
}

TEST(HostToolChannel, AConnectionWithHalfARequestIsNotEndedForAnother) {
  Served served({echo()}, roomy(), {.request_patience = std::chrono::nanoseconds::max()});
  const auto clients = half_senders(served);
  EXPECT_EQ(ChannelClient(served.address).receive()->text,
            "Error: the host takes 64 connections of a run at a time.");
  for (std::size_t i = 0; i < clients.size(); ++i) {
    clients[i]->send(kWhole.substr(1 + i % (kWhole.size() - 1)));
    EXPECT_EQ(clients[i]->receive()->text, "{}");
  }
}

TEST(HostToolChannel, OneThatStopsWithinARequestMakesRoomAsIfItHadSentNothing) {
  Served served({echo()}, roomy(), {.request_patience = std::chrono::nanoseconds(1)});
  const auto clients = half_senders(served);
  EXPECT_EQ(ChannelClient(served.address).call("echo", "{}"), "{}");
  EXPECT_EQ(clients[0]->receive()->kind, 2);
}

TEST(HostToolChannel, WhatIsSentToAConnectionThatIsEndedIsNeverDone) {
  // More callers than connections, each keeping its own until it is told that it is ended.
  constexpr int kCallers = 80;
  constexpr int kCalls = 50;
  std::atomic<int> done = 0;
  Served served(
      {tool_of("count", [&](const auto&, const auto&) { return boost::json::value(++done); })});
  std::atomic<int> answered = 0;
  std::atomic<int> ended = 0;
  // After its first answer each keeps its connection until all have one.
  std::latch first_answers(kCallers);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.emplace_back([&, caller] {
      const std::uint32_t id = 7 | (caller % 2 == 0 ? kWaits : 0);
      bool has_one = false;
      no_throw([&] {
        auto client = std::make_unique<ChannelClient>(served.address);
        for (int call = 0; call < kCalls;) {
          try {
            client->send(channel_request(id, "count", "{}"));
          } catch (const std::system_error&) {
            // Ended; that is to be read.
          }
          const auto answer = client->receive();
          ASSERT_TRUE(answer);
          if (answer->id == id) {
            ++answered;
            ++call;
            if (!std::exchange(has_one, true)) first_answers.arrive_and_wait();
          } else {
            ASSERT_EQ(answer->kind, 2) << answer->text;
            ++ended;
            client = std::make_unique<ChannelClient>(served.address);
          }
        }
      });
      // The others are not to wait for one that failed.
      if (!has_one) first_answers.count_down();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, kCallers * kCalls);
  EXPECT_EQ(done, kCallers * kCalls);
  EXPECT_GT(ended, 0);
}

// Takes every descriptor that this process may have.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 400;
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.emplace_back(fd);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  void free_one() { taken_.pop_back(); }
  void free_some() { taken_.resize(taken_.size() / 2); }

 private:
  rlimit before_{};
  std::vector<sys::UniqueFd> taken_;
};

TEST(HostToolChannel, OutOfDescriptorsTakesCallersOnceThereAreSomeAndSaysItOnce) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer looks at an object's class through a pipe of its own";
#endif
  Served served({echo()});
  ChannelClient there(served.address);
  EXPECT_EQ(there.call("echo", "{}"), "{}");
  NoDescriptors none;
  none.free_one();
  ChannelClient client(served.address);
  client.send(channel_request(kWaits | 1, "echo", "{}"));
  served.log.await("no connection can be taken for now");
  // Those that are there are served, and nothing is asked or said again and again meanwhile.
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(there.call("echo", "{}"), "{}");
  none.free_some();
  EXPECT_EQ(client.receive()->text, "{}");
  const std::string text = served.log.text();
  EXPECT_EQ(text.find("for now"), text.rfind("for now")) << text;
}

TEST(HostToolChannel, SurvivesTenThousandConnections) {
  Served served({echo()});
  for (int i = 0; i < 10'000; ++i) ChannelClient client(served.address);
  while (ChannelClient(served.address).call("echo", "{}") != "{}") {
  }
}

}  // namespace
}  // namespace casemate
