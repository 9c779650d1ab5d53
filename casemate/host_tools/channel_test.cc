#include "casemate/host_tools/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/channel_frame.h"
#include "casemate/host_tools/channel_served_test.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using std::chrono::milliseconds;

TEST(HostToolChannel, AnswersValuesAndRefusals) {
  Served served({echo()});
  ChannelClient client(served.address);
  EXPECT_EQ(client.call("echo", R"({"a":[1,"ü"]})"), R"({"a":[1,"ü"]})");
  EXPECT_EQ(client.call("other", "{}"), "Error: there is no host tool 'other'.");
  EXPECT_EQ(client.call("echo", "nonsense").substr(0, 7), "Error: ");
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  EXPECT_EQ(served.run.counters().delivered_bytes, std::string(R"({"a":[1,"ü"]}{})").size());
}

// HT-12: at the caps passes, one byte more is refused; what frames an answer is not the tool's.
TEST(HostToolChannel, AnAnswerMayHaveAllTheBytesOfTheCaps) {
  constexpr std::uint64_t kCap = kDefaultTransferLimits.max_bytes_per_file;
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kCap, 2 * kCap + 1, kMany};
  Served served({tool_of("text",
                         [](const boost::json::object& arguments, const auto&) {
                           const auto bytes = arguments.at("bytes").to_number<std::size_t>();
                           return boost::json::value(boost::json::string(bytes - 2, 'x'));
                         })},
                options);
  ChannelClient client(served.address);
  const auto call = [&](std::uint64_t bytes) {
    return client.call("text", "{\"bytes\":" + std::to_string(bytes) + "}");
  };
  EXPECT_EQ(call(kCap).size(), kCap);
  EXPECT_EQ(call(kCap + 1),
            "Error: the answer of host tool 'text' has 8388609 bytes; one may have 8388608.");
  EXPECT_EQ(call(kCap - 2).size(), kCap - 2);
  EXPECT_EQ(call(4),
            "Error: the answer of host tool 'text' has 4 bytes; of the 16777217 that the answers "
            "of this run may have, 3 are left.");
  EXPECT_EQ(call(3).size(), 3U);
}

TEST(HostToolChannel, RefusesOptionsWithWhichNoCallerCouldBeServed) {
  HostToolRun run(registry_of({echo()}), {});
  const auto refused = [&](HostToolChannelOptions options, std::string_view part) {
    expect_refusal<InvalidArgument>([&] { HostToolChannel channel(run, options); }, part);
  };
  refused({.max_in_flight = 0}, "max_in_flight is 0");
  refused({.send_patience = std::chrono::nanoseconds(0)}, "send_patience is 0 ns");
  refused({.send_patience = std::chrono::nanoseconds(-1)}, "send_patience is -1 ns");
  refused({.request_patience = std::chrono::nanoseconds(0)}, "request_patience is 0 ns");
  EXPECT_NO_THROW(
      HostToolChannel(run, {.max_in_flight = 1, .send_patience = std::chrono::nanoseconds(1)}));
}

TEST(HostToolChannel, ARefusalReachesTheCallerAlsoPastTheCap) {
  HostToolRegistryOptions options = roomy();
  options.max_host_tool_calls_per_run = 2;
  Served served({echo()}, options);
  ChannelClient client(served.address);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(client.call("echo", "{}").find("are used up"), std::string::npos);
  }
}

TEST(HostToolChannel, AnswersRequestsOfOneConnectionAsTheyFinish) {
  Gate gate;
  Served served({echo(), tool_of("slow", [&](const auto&, const auto&) {
                   gate.pass();
                   return boost::json::value("slow");
                 })});
  ChannelClient client(served.address);
  client.send(channel_request(1, "slow", "{}") + channel_request(2, "echo", "{}"));
  EXPECT_EQ(client.receive()->id, 2U);
  client.send(channel_request(3, "echo", "{}"));
  EXPECT_EQ(client.receive()->id, 3U);
  gate.open();
  EXPECT_EQ(client.receive()->text, "\"slow\"");
}

TEST(HostToolChannel, ACallerThatSaidItWaitsAndSendsMoreIsAnsweredAllTheSame) {
  Gate gate;
  Served served({echo(), tool_of("slow", [&](const auto&, const auto&) {
                   gate.pass();
                   return boost::json::value("slow");
                 })});
  ChannelClient client(served.address);
  client.send(channel_request(kWaits | 1, "slow", "{}"));
  gate.await(1);
  client.send(channel_request(2, "echo", "{}") + channel_request(kWaits | 3, "echo", "{}"));
  ChannelClient other(served.address);
  EXPECT_EQ(other.call("echo", "{}"), "{}");
  gate.open();
  std::set<std::uint32_t> answered;
  for (int i = 0; i < 3; ++i) answered.insert(client.receive()->id);
  EXPECT_EQ(answered, (std::set<std::uint32_t>{2, kWaits | 1, kWaits | 3}));
  EXPECT_EQ(client.call("echo", "{}"), "{}");
}

TEST(HostToolChannel, AThreadThatStaysWithACallerEndsWithTheRun) {
  for (int i = 0; i < 50; ++i) {
    auto served = std::make_unique<Served>(std::vector<HostTool>{echo()});
    std::vector<std::unique_ptr<ChannelClient>> clients;
    for (int each = 0; each < 4; ++each) {
      clients.push_back(std::make_unique<ChannelClient>(served->address));
      EXPECT_EQ(clients.back()->call("echo", "{}"), "{}");
    }
    served.reset();
    for (const auto& client : clients) EXPECT_FALSE(client->receive());
  }
}

TEST(HostToolChannel, NeverCrossesAnswers) {
  Served served({echo()});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      ChannelClient client(served.address);
      for (int call = 0; call < 1000; ++call) {
        const std::string arguments =
            "{\"who\":" + std::to_string(thread) + ",\"n\":" + std::to_string(call) + "}";
        const auto id = static_cast<std::uint32_t>(call) | (thread % 2 == 0 ? kWaits : 0);
        right += client.call("echo", arguments, id) == arguments;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8000);
  EXPECT_EQ(served.run.counters().dispatched, 8000U);
}

TEST(HostToolChannel, AToolThatBlocksForEverIsRefusedWhileOtherCallsGoOn) {
  Gate gate;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  stuck.timeout = milliseconds(500);
  {
    Served served({echo(), stuck});
    ChannelClient client(served.address);
    ChannelClient other(served.address);
    client.send(channel_request(1, "stuck", "{}"));
    gate.await(1);
    EXPECT_EQ(other.call("echo", "{}"), "{}");
    EXPECT_NE(client.receive()->text.find("did not answer within 0.5"), std::string::npos);
    EXPECT_EQ(client.call("echo", "{}"), "{}");
    gate.open();
  }
}

TEST(HostToolChannel, ACallerThatWaitsIsReadAgainOnceItsCallIsAnswered) {
  // Not when a function that ignores its time comes back.
  Gate gate;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  stuck.timeout = milliseconds(50);
  Served served({echo(), stuck});
  ChannelClient client(served.address);
  EXPECT_NE(client.call("stuck", "{}").find("did not answer within 0.05"), std::string::npos);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  EXPECT_NE(client.call("stuck", "{}").find("did not answer within 0.05"), std::string::npos);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  gate.open();
}

TEST(HostToolChannel, ACallerWhoseThreadDoesAnothersCallIsReadAgain) {
  Gate first;
  Gate second;
  HostTool one = tool_of("one", [&](const boost::json::object& arguments, const auto&) {
    (arguments.empty() ? first : second).pass();
    return boost::json::value(1);
  });
  one.max_concurrency = 1;
  Served served({echo(), one});
  ChannelClient client(served.address);
  ChannelClient other(served.address);
  client.send(channel_request(kWaits | 1, "one", "{}"));
  first.await(1);
  other.send(channel_request(kWaits | 1, "one", R"({"a":1})"));
  // Answered once the call before was taken up, which waits for its turn.
  EXPECT_EQ(ChannelClient(served.address).call("echo", "{}"), "{}");
  first.open();
  EXPECT_TRUE(client.receive()->ok);
  second.await(1);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  second.open();
  EXPECT_TRUE(other.receive()->ok);
}

TEST(HostToolChannel, ACallerThatTakesNoAnswersHoldsUpOnlyItself) {
  Served served(
      {tool_of("big",
               [](const auto&, const auto&) {
                 return boost::json::value(boost::json::string(std::string(500'000, 'x')));
               }),
       echo()},
      roomy(), {.send_patience = milliseconds(100)});
  ChannelClient deaf(served.address);
  for (std::uint32_t i = 1; i <= 32; ++i) deaf.send(channel_request(i, "big", "{}"));
  ChannelClient good(served.address);
  EXPECT_EQ(good.call("echo", "{}"), "{}");
  served.log.await("takes no answers");
  EXPECT_EQ(good.call("echo", "{}"), "{}");
}

TEST(HostToolChannel, APatienceWithoutEndIsNotOver) {
  // The sum of it and the time that it is would lie in the past.
  Served served({tool_of("big",
                         [](const auto&, const auto&) {
                           return boost::json::value(boost::json::string(900'000, 'x'));
                         })},
                roomy(), {.send_patience = std::chrono::nanoseconds::max()});
  ChannelClient slow(served.address);
  slow.send(channel_request(kWaits | 1, "big", "{}") + channel_request(2, "big", "{}"));
  while (served.run.counters().delivered_bytes < 1'800'000) std::this_thread::yield();
  EXPECT_EQ(slow.receive()->text.size(), 900'002U);
  EXPECT_EQ(slow.receive()->text.size(), 900'002U);
  EXPECT_EQ(served.log.text(), "");
}

TEST(HostToolChannel, NothingMoreIsReadOfACallerThatHasNotTakenItsAnswer) {
  Served served({echo(), tool_of("big", [](const auto&, const auto&) {
                   return boost::json::value(boost::json::string(std::string(900'000, 'x')));
                 })});
  ChannelClient slow(served.address);
  slow.send(channel_request(kWaits | 1, "big", "{}"));
  // What has come of it was sent by who also noted what could not be.
  pollfd some{slow.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&some, 1, 10'000), 1);
  for (std::uint32_t i = 2; i <= 101; ++i) slow.send(channel_request(i, "echo", "{}"));
  ChannelClient good(served.address);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(good.call("echo", "{}"), "{}");
  EXPECT_EQ(served.run.counters().dispatched, 51U);
  EXPECT_EQ(slow.receive()->text.size(), 900'002U);
  for (int i = 2; i <= 101; ++i) EXPECT_EQ(slow.receive()->text, "{}");
}

TEST(HostToolChannel, ASlowReaderGetsEveryAnswerWhole) {
  Served served({tool_of("big", [](const auto&, const auto&) {
    return boost::json::value(boost::json::string(std::string(100'000, 'x')));
  })});
  ChannelClient client(served.address);
  for (std::uint32_t i = 1; i <= 100; ++i) client.send(channel_request(i, "big", "{}"));
  std::set<std::uint32_t> ids;
  for (int i = 0; i < 100; ++i) {
    const auto answer = client.receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->text.size(), 100'002U);
    ids.insert(answer->id);
  }
  EXPECT_EQ(ids.size(), 100U);
}

TEST(HostToolChannel, ReadsNoMoreThanItMayHaveUnderWay) {
  Gate gate;
  Served served({tool_of("slow",
                         [&](const auto&, const auto&) {
                           gate.pass();
                           return boost::json::value(1);
                         })},
                roomy(), {.max_in_flight = 2});
  ChannelClient client(served.address);
  for (std::uint32_t i = 1; i <= 6; ++i) client.send(channel_request(i, "slow", "{}"));
  gate.await(2);
  EXPECT_EQ(served.run.counters().dispatched, 2U);
  gate.open();
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(client.receive()->ok);
}

TEST(HostToolChannel, TheEndCutsEverybodyOff) {
  // HT-10
  Served served({echo()});
  ChannelClient client(served.address);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  served.channel->close();
  served.channel->close();
  EXPECT_FALSE(client.receive());
  EXPECT_THROW(ChannelClient(served.address), std::system_error);
  EXPECT_EQ(served.run.counters().dispatched, 1U);
}

TEST(HostToolChannel, EndsWhileCallsAreInTheMiddle) {
  const auto gate = std::make_shared<Gate>();
  std::vector<std::unique_ptr<ChannelClient>> clients;
  {
    Served served({tool_of("slow", [gate](const auto&, const auto&) {
      gate->pass();
      return boost::json::value(1);
    })});
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<ChannelClient>(served.address));
      clients.back()->send(channel_request(1, "slow", "{}"));
    }
    gate->await(4);
  }
  gate->open();
  for (const auto& client : clients) EXPECT_FALSE(client->receive());
}

TEST(HostToolChannel, ACallerThatVanishesInTheMiddleLeavesNothing) {
  Gate gate;
  Served served({tool_of("slow",
                         [&](const auto&, const auto&) {
                           gate.pass();
                           return boost::json::value(1);
                         }),
                 echo()});
  for (int i = 0; i < 10; ++i) ChannelClient(served.address).send(channel_request(1, "slow", "{}"));
  gate.await(10);
  gate.open();
  EXPECT_EQ(ChannelClient(served.address).call("echo", "{}"), "{}");
}

TEST(HostToolChannel, AForkedChildOfTheHostCutsNobodyOff) {
  auto served = std::make_unique<Served>(std::vector<HostTool>{echo()});
  ChannelClient client(served->address);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  const pid_t child = fork();
  if (child == 0) {
    served->channel->close();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(client.call("echo", "{}"), "{}");
}

}  // namespace
}  // namespace casemate
