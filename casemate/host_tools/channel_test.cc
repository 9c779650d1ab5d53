#include "casemate/host_tools/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/channel_frame.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/no_throw.h"

namespace casemate {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMany = 1'000'000;

HostToolRegistryOptions roomy() {
  return {.max_host_tool_calls_per_run = kMany, .response_limits = {kMiB, 64 * kMiB, kMany}};
}

class Served {
 public:
  explicit Served(std::vector<HostTool> tools, HostToolRegistryOptions options = roomy(),
                  HostToolChannelOptions channel_options = {})
      : registry(registry_of(std::move(tools), std::move(options))),
        run(registry, {.log = log.hook(), .close_patience = milliseconds(200)}) {
    channel_options.log = log.hook();
    channel.emplace(run, channel_options);
    address = sys::bind_to_fresh_name(channel->socket());
    channel->serve();
  }
  ~Served() { channel->close(); }

  KeptLog log;
  std::shared_ptr<HostToolRegistry> registry;
  HostToolRun run;
  std::optional<HostToolChannel> channel;
  std::string address;
};

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

TEST(HostToolChannel, CutsOffWhatIsNoRequest) {
  Served served({echo()});
  ChannelClient good(served.address);
  for (const std::string& bytes :
       {std::string(4, '\0'), std::string(4, '\xff'), little_endian(kMinRequestBytes - 1, 4),
        std::string(1 << 20, '\xfe')}) {
    ChannelClient client(served.address);
    try {
      client.send(bytes);
    } catch (const std::system_error&) {
      continue;  // cut off while it was still talking
    }
    const auto answer = client.receive();
    if (answer) {
      EXPECT_EQ(answer->id, 0U);
      EXPECT_EQ(answer->text, "Error: what was sent is no request.");
    }
  }
  EXPECT_EQ(good.call("echo", "{}"), "{}");
}

TEST(HostToolChannel, AHalfRequestHoldsUpNobody) {
  Served served({echo()});
  ChannelClient half(served.address);
  const std::string whole = channel_request(3, "echo", "{}");
  half.send(whole.substr(0, 7));
  ChannelClient good(served.address);
  EXPECT_EQ(good.call("echo", "{}"), "{}");
  half.send(whole.substr(7));
  EXPECT_EQ(half.receive()->text, "{}");
  ChannelClient gone(served.address);
  gone.send(whole.substr(0, 5));
}

TEST(HostToolChannel, RefusesWhatIsMalformedOrTooLargeAndGoesOn) {
  HostToolRegistryOptions options = roomy();
  options.response_limits.max_bytes_per_file = 100;
  Served served({echo()}, options);
  ChannelClient client(served.address);
  const std::string body = little_endian(9, 4) + little_endian(500, 2) + "ab";
  client.send(little_endian(body.size(), 4) + body);
  EXPECT_EQ(client.receive()->text, "Error: the host cannot take the request apart.");
  // 64 KiB are taken however small answers are; 6 bytes are the request's, 4 the name's.
  const auto padded = [](std::size_t bytes) { return std::string(bytes - 2, ' ') + "{}"; };
  EXPECT_EQ(client.call("echo", padded(64 * kKiB - 10)), "{}");
  EXPECT_EQ(client.call("echo", padded(64 * kKiB - 9)),
            "Error: the arguments are too large: the request has 65537 bytes; one may have 65536.");
  EXPECT_EQ(client.call("echo", std::string(10 << 20, '[')),
            "Error: the arguments are too large: the request has 10485770 bytes; one may have "
            "65536.");
  EXPECT_EQ(client.call("echo", "{}"), "{}");
  EXPECT_EQ(served.run.counters().dispatched, 2U);
}

// Arguments that are `bytes` of text for no object but `{}`.
std::string spaces_and_object(std::size_t bytes) { return std::string(bytes - 2, ' ') + "{}"; }

TEST(HostToolChannel, HalfRequestsOfAllCallersTogetherAreBounded) {
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kMiB, kMiB, kMany};
  Served served({echo()}, options);
  const std::string whole = channel_request(1, "echo", spaces_and_object(900 * kKiB));
  const std::size_t half = 800 * kKiB;
  // Sent is all but what a socket's buffer takes, so the host has well over the 10 MiB of them.
  std::vector<std::unique_ptr<ChannelClient>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<ChannelClient>(served.address));
    clients.back()->set_room(64 * 1024);
    clients.back()->send(whole.substr(0, half));
  }
  for (const auto& client : clients) client->send(whole.substr(half));
  int taken = 0;
  int refused = 0;
  for (const auto& client : clients) {
    const std::string text = client->receive()->text;
    taken += text == "{}";
    refused += text.find("of the 10485760 that the host holds for the calls") != std::string::npos;
  }
  EXPECT_EQ(taken + refused, 24);
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(HostToolChannel, WhatVanishedCallersSentCountsNoMore) {
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kMiB, kMiB, kMany};
  Served served({echo()}, options);
  const std::string whole = channel_request(1, "echo", spaces_and_object(900 * kKiB));
  for (int i = 0; i < 24; ++i) ChannelClient(served.address).send(whole.substr(0, 800 * kKiB));
  // The host notices the end by itself; until then they count.
  while (ChannelClient(served.address).call("echo", spaces_and_object(900 * kKiB)) != "{}") {
  }
}

TEST(HostToolChannel, OneRequestMayBeLargerThanAllAnswersTogether) {
  HostToolRegistryOptions options = roomy();
  options.response_limits = {kMiB, 100 * kKiB, kMany};
  Served served({echo()}, options);
  ChannelClient client(served.address);
  EXPECT_EQ(client.call("echo", spaces_and_object(500 * kKiB)), "{}");
}

TEST(HostToolChannel, HostileJsonIsRefusedAndTheNextCallServed) {
  // HT-04 as the host sees it.
  Served served({echo()});
  ChannelClient client(served.address);
  for (const std::string& arguments : std::vector<std::string>{
           std::string(200'000, '['), R"({"a":1,"a":1})", R"({"a":NaN})", "{\"a\":\"\xff\xfe\"}",
           R"({"a":99999999999999999999})", R"({"a":1e400})", std::string("{\0}", 3)}) {
    EXPECT_EQ(client.call("echo", arguments).substr(0, 6), "Error:");
    EXPECT_EQ(client.call("echo", "{}"), "{}");
  }
  EXPECT_EQ(client.call(std::string("\xff\0x", 3), "{}"),
            R"(Error: there is no host tool '\xff\x00x'.)");
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
