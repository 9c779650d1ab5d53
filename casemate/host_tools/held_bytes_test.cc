#include "casemate/host_tools/held_bytes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/host_tools/channel.h"
#include "casemate/host_tools/channel_client_test.h"
#include "casemate/host_tools/tools_test.h"

namespace {

// Allocations of so much fail on every thread but those that are spared.
std::atomic<std::size_t> fail_from = SIZE_MAX;
thread_local bool spared = false;

class Shortage {
 public:
  explicit Shortage(std::size_t from) {
    spared = true;
    fail_from = from;
  }
  ~Shortage() { fail_from = SIZE_MAX; }
};

}  // namespace

// This whole test program's. Not inlined: g++ 12 would see memory from `new` given to `free`.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* got = bytes >= fail_from && !spared ? nullptr : std::malloc(bytes);
  if (got == nullptr) throw std::bad_alloc();
  return got;
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

namespace casemate {
namespace {

// Of so many bytes, all of them numbers.
std::string numbers(std::size_t bytes) {
  std::string text = R"({"a":[0)";
  while (text.size() + 4 <= bytes) text += ",0";
  return text + "]}";
}

HostToolRegistryOptions narrow() {
  return {.max_host_tool_calls_per_run = 10'000, .response_limits = {1000, 100'000, 10'000}};
}

HostTool held_at(Gate& gate) {
  return tool_of("slow", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
}

TEST(HeldBytes, GivesUpToItsBoundAndTakesBack) {
  const auto held = std::make_shared<HeldBytes>(100);
  HeldShare one(held);
  EXPECT_TRUE(one.resize(60));
  {
    HeldShare two(held);
    EXPECT_FALSE(two.resize(41));
    EXPECT_TRUE(two.resize(40));
    EXPECT_EQ(held->left(), 0U);
    const HeldShare moved = std::move(two);
    EXPECT_EQ(held->left(), 0U);
  }
  EXPECT_EQ(held->left(), 40U);
  EXPECT_FALSE(one.resize(~std::uint64_t{0}));
  EXPECT_TRUE(one.resize(10));
  one = HeldShare(held);
  EXPECT_EQ(held->left(), 100U);
  EXPECT_FALSE(HeldShare().resize(1));
}

TEST(HostToolMemory, ArgumentsOfTooManyValuesAreRefused) {
  HostToolRun run(registry_of({echo()}), {});
  const std::string nested = std::string(60, '[') + "0" + std::string(60, ']') + ",";
  std::string text = R"({"a":[)";
  while (text.size() + nested.size() + 3 < 8 * kMiB) text += nested;
  EXPECT_NE(run.dispatch("echo", text + "0]}").text().find("of the 33554432 that the host holds"),
            std::string::npos);
  EXPECT_NE(run.dispatch("echo", numbers(600'000)).text().find("is over the limit of 262144"),
            std::string::npos);
  while (run.held_bytes()->left() < run.held_bytes()->max()) std::this_thread::yield();
}

TEST(HostToolMemory, TheArgumentsOfCallsUnderWayHaveOneBound) {
  Gate gate;
  HostTool slow = held_at(gate);
  slow.timeout = std::chrono::seconds(1);
  HostToolRun run(registry_of({slow, echo()}, narrow()), {});
  // 30 thousand values: 2.9 MB of 8.1.
  const std::string text = numbers(60'000);
  std::vector<std::future<HostToolAnswer>> answers;
  for (int i = 1; i <= 2; ++i) {
    answers.push_back(std::async(std::launch::async, [&] { return run.dispatch("slow", text); }));
    gate.await(i);
  }
  const std::string refusal = run.dispatch("echo", text).text();
  EXPECT_NE(refusal.find("that the host holds for the calls of a run at a time, "),
            std::string::npos)
      << refusal;
  EXPECT_EQ(run.dispatch("echo", "{}").text(), "{}");
  for (auto& answer : answers) EXPECT_FALSE(answer.get().ok());
  // A function that was left to itself has its arguments still.
  EXPECT_EQ(run.dispatch("echo", text).text(), refusal);
  gate.open();
  while (run.held_bytes()->left() < run.held_bytes()->max()) std::this_thread::yield();
  EXPECT_NE(run.dispatch("echo", text).text(), refusal);
}

TEST(HostToolMemory, RequestsThatWaitAreHeldWithinTheBoundToo) {
  Gate gate;
  KeptLog log;
  HostToolRun run(registry_of({held_at(gate), echo()}, narrow()), {.max_parallel_calls = 1});
  HostToolChannel channel(run, {.log = log.hook()});
  const std::string address = sys::bind_to_fresh_name(channel.socket());
  channel.serve();
  std::vector<std::unique_ptr<ChannelClient>> clients;
  // Text alone, of 60 KB: 8.1 MB are 138 of the 400, and 60 may be on their way.
  const std::string text = R"({"a":")" + std::string(60'000, 'x') + "\"}";
  std::size_t refused = 0;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<ChannelClient>(address));
    for (std::uint32_t id = 1; id <= 20; ++id) {
      clients.back()->send(channel_request(id, "slow", text));
    }
  }
  gate.await(1);
  gate.open();
  for (const auto& client : clients) {
    for (int i = 0; i < 20; ++i) {
      const auto answer = client->receive();
      ASSERT_TRUE(answer);
      refused += answer->ok ? 0 : 1;
    }
  }
  EXPECT_GE(refused, 150U);
  clients.clear();
  while (run.held_bytes()->left() < run.held_bytes()->max()) std::this_thread::yield();
  channel.close();
}

TEST(HostToolMemory, ACallerThatIsCutOffInTheMiddleOfARequestGivesItsBytesBack) {
  KeptLog log;
  HostToolRegistryOptions options{.max_host_tool_calls_per_run = 1000,
                                  .response_limits = {kMiB, 64 * kMiB, 1000}};
  HostToolRun run(registry_of({tool_of("big",
                                       [](const auto&, const auto&) {
                                         return boost::json::value(
                                             boost::json::string(std::string(500'000, 'x')));
                                       })},
                              options),
                  {});
  HostToolChannel channel(run,
                          {.log = log.hook(), .send_patience = std::chrono::milliseconds(300)});
  const std::string address = sys::bind_to_fresh_name(channel.socket());
  channel.serve();
  EXPECT_EQ(ChannelClient(address).call("big", std::string(500'000, ' ') + "{}").size(), 500'002U);
  ChannelClient deaf(address);
  deaf.send(channel_request(1, "big", "{}") +
            channel_request(2, "big", std::string(500'000, ' ')).substr(0, 100'000));
  log.await("takes no answers");
  while (run.held_bytes()->left() < run.held_bytes()->max()) std::this_thread::yield();
  channel.close();
}

TEST(HostToolMemory, ACallForWhichTheHostHasNoMemoryIsAnswered) {
  KeptLog log;
  HostToolRun run(registry_of({echo()}), {.log = log.hook()});
  const std::string text = R"({"a":")" + std::string(300'000, 'x') + "\"}";
  {
    const Shortage shortage(200'000);
    EXPECT_EQ(run.dispatch("echo", text).text(),
              "Error: host tool 'echo' was not called: the host has no room for it now.");
  }
  EXPECT_EQ(run.counters(), (HostToolCounters{1, 0, 0}));
  while (run.held_bytes()->left() < run.held_bytes()->max()) std::this_thread::yield();
  EXPECT_EQ(run.dispatch("echo", text).text(), text);
}

TEST(HostToolMemory, AConnectionForWhichTheHostHasNoMemoryEnds) {
  KeptLog log;
  HostToolRun run(registry_of({echo()}), {});
  HostToolChannel channel(run, {.log = log.hook()});
  const std::string address = sys::bind_to_fresh_name(channel.socket());
  channel.serve();
  ChannelClient other(address);
  {
    const Shortage shortage(200'000);
    ChannelClient client(address);
    try {
      client.send(channel_request(1, "echo", std::string(300'000, ' ')));
      EXPECT_FALSE(client.receive());
    } catch (const std::system_error&) {
      // Cut off while it was still talking.
    }
  }
  log.await("is given up");
  EXPECT_EQ(other.call("echo", "{}"), "{}");
  channel.close();
}

}  // namespace
}  // namespace casemate
