#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "casemate/host_tools/run.h"
#include "casemate/host_tools/tools_test.h"

namespace casemate {
namespace {

// Returns a string that is `n` bytes of JSON, its quotes included, and counts its calls.
HostTool sized(std::atomic<int>& calls) {
  return tool_of("sized", [&](const boost::json::object& arguments, const auto&) {
    ++calls;
    const auto bytes = static_cast<std::size_t>(arguments.at("n").get_int64());
    return boost::json::value(boost::json::string(std::string(bytes - 2, 'x')));
  });
}

std::string asking(std::uint64_t bytes) { return "{\"n\":" + std::to_string(bytes) + "}"; }

class Limited {
 public:
  explicit Limited(TransferLimits limits, std::uint64_t max_calls = 1000)
      : run(registry_of({sized(calls), echo()},
                        {.max_host_tool_calls_per_run = max_calls, .response_limits = limits}),
            {}) {}

  std::atomic<int> calls = 0;
  HostToolRun run;
};

TEST(HostToolLimits, RefusedCallsCountAgainstTheCap) {
  // HT-06: 32 are dispatched, whatever becomes of them; number 33 is told.
  for (const auto& [name, arguments] : std::vector<std::pair<std::string, std::string>>{
           {"echo", "{}"}, {"unknown", "{}"}, {"echo", "[]"}, {"echo", "not json"}}) {
    Limited limited({kMiB, kMiB, 1000}, 32);
    int told = 0;
    for (int i = 0; i < 40; ++i) {
      const HostToolAnswer answer = limited.run.dispatch(name, arguments);
      if (answer.text() ==
          "Error: the 32 host tool calls of this run are used up; finish with what there is.") {
        ++told;
        EXPECT_GE(i, 32);
      }
    }
    EXPECT_EQ(told, 8) << name << " " << arguments;
    EXPECT_EQ(limited.run.counters().dispatched, 40U);
  }
}

TEST(HostToolLimits, TheCapHoldsUnderRaces) {
  // HT-06: 20 threads by 4 calls at once.
  std::atomic<int> calls = 0;
  HostToolRun run(
      registry_of(
          {tool_of("count", [&](const auto&, const auto&) { return boost::json::value(++calls); })},
          {.max_host_tool_calls_per_run = 32}),
      {});
  std::atomic<int> served = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&] {
      for (int each = 0; each < 4; ++each) served += run.dispatch("count", "{}").ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 32);
  EXPECT_EQ(calls, 32);
  EXPECT_EQ(run.counters().delivered, 32U);
}

TEST(HostToolLimits, TheNumberOfAnswersIsCheckedBeforeTheFunction) {
  Limited limited({kMiB, kMiB, 2});
  EXPECT_TRUE(limited.run.dispatch("sized", asking(2)).ok());
  EXPECT_TRUE(limited.run.dispatch("sized", asking(2)).ok());
  EXPECT_EQ(limited.run.dispatch("sized", asking(2)).text(),
            "Error: the 2 answers of this run are used up; finish with what there is.");
  EXPECT_EQ(limited.calls, 2);
}

TEST(HostToolLimits, ARefusedCallGivesItsAnswerBack) {
  Limited limited({8, kMiB, 1});
  EXPECT_FALSE(limited.run.dispatch("sized", asking(9)).ok());
  EXPECT_FALSE(limited.run.dispatch("unknown", "{}").ok());
  EXPECT_EQ(limited.run.counters().delivered, 0U);
  EXPECT_TRUE(limited.run.dispatch("sized", asking(8)).ok());
  EXPECT_EQ(limited.run.counters().delivered, 1U);
}

TEST(HostToolLimits, OneAnswerMayHaveExactlyItsBytes) {
  // HT-12: cap-1, cap, cap+1.
  Limited limited({100, kMiB, 100});
  EXPECT_TRUE(limited.run.dispatch("sized", asking(99)).ok());
  EXPECT_TRUE(limited.run.dispatch("sized", asking(100)).ok());
  EXPECT_EQ(limited.run.dispatch("sized", asking(101)).text(),
            "Error: the answer of host tool 'sized' has 101 bytes; one may have 100.");
  EXPECT_EQ(limited.run.counters().delivered_bytes, 199U);
}

TEST(HostToolLimits, AllAnswersTogetherMayHaveExactlyTheirBytes) {
  // HT-12: the sum.
  Limited limited({100, 150, 100});
  EXPECT_TRUE(limited.run.dispatch("sized", asking(100)).ok());
  EXPECT_EQ(limited.run.dispatch("sized", asking(51)).text(),
            "Error: the answer of host tool 'sized' has 51 bytes; of the 150 that the answers of "
            "this run may have, 50 are left.");
  EXPECT_TRUE(limited.run.dispatch("sized", asking(50)).ok());
  EXPECT_EQ(limited.calls, 3);
  EXPECT_EQ(limited.run.dispatch("sized", asking(2)).text(),
            "Error: the 150 bytes that the answers of this run may have are used up; finish with "
            "what there is.");
  EXPECT_EQ(limited.calls, 3) << "not one byte would fit, so the function is not called";
}

TEST(HostToolLimits, FramingCountsWithTheAnswer) {
  Limited limited({100, 210, 100});
  EXPECT_EQ(limited.run.dispatch("sized", asking(90), 11).text(),
            "Error: the answer of host tool 'sized' has 101 bytes; one may have 100.");
  EXPECT_TRUE(limited.run.dispatch("sized", asking(89), 11).ok());
  EXPECT_EQ(limited.run.counters().delivered_bytes, 100U);
  EXPECT_TRUE(limited.run.dispatch("sized", asking(89), 11).ok());
  EXPECT_EQ(limited.calls, 3);
  EXPECT_NE(limited.run.dispatch("sized", asking(2), 10).text().find("are used up"),
            std::string::npos);
  EXPECT_EQ(limited.calls, 3);
  EXPECT_TRUE(limited.run.dispatch("sized", asking(2), 8).ok());
}

TEST(HostToolLimits, FramingThatLeavesNoByteIsRefusedBeforeTheFunction) {
  Limited limited({100, kMiB, 100});
  EXPECT_EQ(limited.run.dispatch("sized", asking(2), 100).text(),
            "Error: no answer fits in the 100 bytes that one may have here.");
  EXPECT_EQ(limited.run.dispatch("sized", asking(2), ~std::uint64_t{0}).text(),
            "Error: the 1048576 bytes that the answers of this run may have are used up; finish "
            "with what there is.");
  EXPECT_EQ(limited.calls, 0);
  EXPECT_FALSE(limited.run.dispatch("sized", asking(2), 99).ok());
  EXPECT_EQ(limited.calls, 1);
}

TEST(HostToolLimits, BytesHoldUnderRaces) {
  Limited limited({10, 1000, 1'000'000});
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int each = 0; each < 50; ++each) limited.run.dispatch("sized", asking(10));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(limited.run.counters().delivered_bytes, 1000U);
  EXPECT_EQ(limited.run.counters().delivered, 100U);
}

}  // namespace
}  // namespace casemate
