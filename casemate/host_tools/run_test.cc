#include "casemate/host_tools/run.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "casemate/host_tools/crew.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using std::chrono::milliseconds;

TEST(HostToolRun, RefusesToBeMadeOfNothing) {
  expect_refusal<InvalidArgument>([] { HostToolRun(nullptr, {}); }, "registry");
  expect_refusal<InvalidArgument>(
      [] { HostToolRun(registry_of({echo()}), {.max_parallel_calls = 0}); }, "max_parallel_calls");
}

TEST(HostToolRun, SealsTheRegistry) {
  const auto registry = registry_of({});
  HostToolRun run(registry, {});
  EXPECT_TRUE(registry->sealed());
}

TEST(HostToolRun, GivesTheExactJsonOfTheValue) {
  HostToolRun run(registry_of({echo()}), {});
  const HostToolAnswer answer = run.dispatch("echo", R"( {"b":[1,2.0,null],"ä":"\u00e4"} )");
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(answer.text(), R"({"b":[1,2.0,null],"ä":"ä"})");
  EXPECT_EQ(run.counters(), (HostToolCounters{1, 1, answer.text().size()}));
}

TEST(HostToolRun, NullMeansNoArguments) {
  HostToolRun run(registry_of({echo()}), {});
  EXPECT_EQ(run.dispatch("echo", "null").text(), "{}");
}

TEST(HostToolRun, RefusesAnUnknownNameWithoutTellingTheKnownOnes) {
  HostToolRun run(registry_of({echo()}), {});
  EXPECT_EQ(run.dispatch("ech", "{}").text(), "Error: there is no host tool 'ech'.");
}

TEST(HostToolRun, QuotesAtMost120CharactersOfAName) {
  HostToolRun run(registry_of({echo()}), {});
  const auto text = [&](const std::string& name) { return run.dispatch(name, "{}").text(); };
  const std::string at(kMaxQuotedCharacters, 'n');
  EXPECT_EQ(text(at), "Error: there is no host tool '" + at + "'.");
  EXPECT_EQ(text(at + "n"), "Error: there is no host tool '" + at + " (truncated)'.");
  EXPECT_EQ(text("a\n\xff\x1b"), R"(Error: there is no host tool 'a\n\xff\x1b'.)");
  std::string umlauts;
  for (std::size_t i = 0; i < kMaxQuotedCharacters; ++i) umlauts += "ü";
  EXPECT_EQ(text(umlauts), "Error: there is no host tool '" + umlauts + "'.");
  // As many bytes as a character can have: none is left out unseen.
  std::string cups;
  for (std::size_t i = 0; i < kMaxQuotedCharacters; ++i) cups += "\U0001F375";
  EXPECT_EQ(text(cups), "Error: there is no host tool '" + cups + "'.");
  EXPECT_EQ(text(cups + "n"), "Error: there is no host tool '" + cups + " (truncated)'.");
  EXPECT_LT(text(std::string(1 << 20, 'x')).size(), 300U);
}

TEST(HostToolRun, NeverServesAToolInAUsersName) {
  HostTool tool = echo();
  const HostToolDeclaration in_a_users_name{
      .source = std::nullopt, .sink = std::nullopt, .identity = Identity::user};
  tool.declaration = in_a_users_name;
  HostToolRun run(registry_of({tool}, {.allowed_identities = {Identity::app, Identity::user}}), {});
  const std::string text = run.dispatch("echo", "{}").text();
  for (const char* part : {"Error: ", "token minted for this run", "audience", "environment"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(run.counters(), (HostToolCounters{1, 0, 0}));
}

TEST(HostToolRun, RefusesArgumentsThatAreNoObject) {
  HostToolRun run(registry_of({echo()}), {});
  for (const char* text : {"[]", "1", "\"x\"", "true"}) {
    EXPECT_EQ(run.dispatch("echo", text).text(),
              "Error: the arguments of host tool 'echo' must be an object.")
        << text;
  }
}

TEST(HostToolRun, RefusesJsonThatItWouldHaveToGuessAt) {
  HostToolRun run(registry_of({echo()}, {.max_host_tool_calls_per_run = 100}), {});
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "{\"a\":";
  for (const std::string& text :
       std::vector<std::string>{"", "{", "{}{}", R"({"a":1,"a":2})", R"({"a":NaN})",
                                R"({"a":Infinity})", R"({"a":18446744073709551616})",
                                R"({"a":1e999})", "{\"a\":\"\xff\"}", R"({"a":"\ud800"})", deep}) {
    const HostToolAnswer answer = run.dispatch("echo", text);
    EXPECT_FALSE(answer.ok()) << text;
    EXPECT_TRUE(answer.text().starts_with("Error: the arguments of host tool 'echo': malformed"))
        << answer.text();
  }
  EXPECT_EQ(run.dispatch("echo", R"({"a":18446744073709551615})").text(),
            R"({"a":18446744073709551615})");
  EXPECT_EQ(run.counters().delivered, 1U);
}

TEST(HostToolRun, RefusesArgumentsThatDoNotFitAndSaysWhy) {
  HostTool tool = echo();
  tool.parameters =
      R"({"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false})";
  HostToolRun run(registry_of({tool}), {});
  EXPECT_EQ(
      run.dispatch("echo", R"({"n":"secret"})").text(),
      "Error: host tool 'echo' was not called: argument 'n' must be an integer, not a string.");
  EXPECT_EQ(run.dispatch("echo", R"({"m":1})").text(),
            "Error: host tool 'echo' was not called: there is no argument 'm'; there is n.");
  EXPECT_EQ(run.counters(), (HostToolCounters{2, 0, 0}));
}

TEST(HostToolRun, TellsTheProgramNothingOfWhyAFunctionFailed) {
  KeptLog log;
  HostToolRun run(
      registry_of(
          {tool_of("thrower",
                   [](const auto&, const auto&) -> boost::json::value {
                     throw std::runtime_error("password=hunter2\nx");
                   }),
           tool_of("odd", [](const auto&, const auto&) -> boost::json::value { throw 7; }),
           tool_of("nan",
                   [](const auto&, const auto&) { return boost::json::value(0.0 / 0.0 * 1.0); })}),
      {.id = "run-7", .log = log.hook()});
  EXPECT_EQ(run.dispatch("thrower", "{}").text(), "Error: host tool 'thrower' failed.");
  EXPECT_EQ(run.dispatch("odd", "{}").text(), "Error: host tool 'odd' failed.");
  EXPECT_EQ(run.dispatch("nan", "{}").text(), "Error: host tool 'nan' failed.");
  EXPECT_NE(log.text().find(R"(run run-7: host tool 'thrower' failed: password=hunter2\nx)"),
            std::string::npos)
      << log.text();
  EXPECT_EQ(run.counters(), (HostToolCounters{3, 0, 0}));
}

TEST(HostToolRun, AValueNestedAsDeepAsAHostLikesIsAFailure) {
  KeptLog log;
  HostToolRun run(registry_of({tool_of("deep",
                                       [](const auto&, const auto&) {
                                         boost::json::value value;
                                         for (int i = 0; i < 200'000; ++i) {
                                           boost::json::array outer;
                                           outer.push_back(std::move(value));
                                           value = std::move(outer);
                                         }
                                         return value;
                                       })}),
                  {.log = log.hook()});
  EXPECT_EQ(run.dispatch("deep", "{}").text(), "Error: host tool 'deep' failed.");
  EXPECT_NE(log.text().find("nested over 64 deep"), std::string::npos) << log.text();
}

TEST(HostToolRun, TellsFunctionsWhoseRunItIs) {
  // HT-08: the identity is the run's own on whatever thread the function runs.
  const auto registry =
      registry_of({tool_of("whoami",
                           [](const auto&, const HostToolContext& context) {
                             return boost::json::value(context.caller.key.scope + "/" +
                                                       context.caller.key.thread_id + "/" +
                                                       context.caller.run_id);
                           })},
                  {.max_host_tool_calls_per_run = 1000, .response_limits = {kMiB, kMiB, 1000}});
  const auto ask = [&](const std::string& who) {
    HostToolRun run(registry, {.key = {who, who, "a"}, .id = who});
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(run.dispatch("whoami", "{}").text(), "\"" + who + "/" + who + "/" + who + "\"");
    }
  };
  std::thread other([&] { ask("two"); });
  ask("one");
  other.join();
}

TEST(HostToolRun, AnswersAsFunctionsFinish) {
  Gate gate;
  HostToolRun run(registry_of({tool_of("slow",
                                       [&](const auto&, const auto&) {
                                         gate.pass();
                                         return boost::json::value("slow");
                                       }),
                               echo()}),
                  {});
  auto slow = std::async(std::launch::async, [&] { return run.dispatch("slow", "{}"); });
  gate.await(1);
  EXPECT_EQ(run.dispatch("echo", "{}").text(), "{}");
  gate.open();
  EXPECT_EQ(slow.get().text(), "\"slow\"");
}

TEST(HostToolRun, RunsNoMoreFunctionsAtOnceThanItMay) {
  Gate gate;
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  HostToolRun run(registry_of({tool_of("slow",
                                       [&](const auto&, const auto&) {
                                         most = std::max(most.load(), ++inside);
                                         gate.pass();
                                         --inside;
                                         return boost::json::value(1);
                                       })}),
                  {.max_parallel_calls = 3});
  std::vector<std::future<HostToolAnswer>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [&] { return run.dispatch("slow", "{}"); }));
  }
  gate.await(3);
  gate.open();
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
  EXPECT_LE(most, 3);
}

TEST(HostToolRun, HoldsAToolsConcurrencyAcrossRuns) {
  Gate gate;
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  HostTool tool = tool_of("one", [&](const auto&, const auto&) {
    most = std::max(most.load(), ++inside);
    gate.pass();
    --inside;
    return boost::json::value(1);
  });
  tool.max_concurrency = 1;
  const auto registry = registry_of({tool, echo()});
  HostToolRun first(registry, {});
  HostToolRun second(registry, {});
  std::vector<std::future<HostToolAnswer>> answers;
  for (HostToolRun* run : {&first, &second, &first, &second}) {
    answers.push_back(std::async(std::launch::async, [=] { return run->dispatch("one", "{}"); }));
  }
  gate.await(1);
  // Others are not held up by those that wait.
  EXPECT_TRUE(first.dispatch("echo", "{}").ok());
  EXPECT_TRUE(second.dispatch("echo", "{}").ok());
  gate.open();
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(most, 1);
}

TEST(HostToolRun, AnswersACallWhoseTimeIsOverAndLeavesItsFunctionToItself) {
  Gate gate;
  KeptLog log;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value("too late");
  });
  stuck.timeout = milliseconds(20);
  const auto registry = registry_of({stuck, echo()});
  HostToolRun run(registry, {.log = log.hook(), .max_parallel_calls = 1});
  EXPECT_EQ(run.dispatch("stuck", "{}").text(),
            "Error: host tool 'stuck' did not answer within 0.02 seconds. What it did by then is "
            "not known.");
  EXPECT_EQ(registry->abandoned_calls(), 1U);
  // It does not count against what may run, and its late answer against nothing.
  EXPECT_EQ(run.dispatch("echo", "{}").text(), "{}");
  gate.open();
  log.await("came back");
  EXPECT_EQ(registry->abandoned_calls(), 0U);
  EXPECT_EQ(run.counters(), (HostToolCounters{2, 1, 2}));
}

TEST(HostToolRun, TellsAFunctionToStopWhenItsTimeIsOver) {
  HostTool tool = tool_of("waits", [](const auto&, const HostToolContext& context) {
    Gate stopped;
    const std::stop_callback open(context.stop, [&] { stopped.open(); });
    stopped.pass();
    return boost::json::value(1);
  });
  tool.timeout = milliseconds(10);
  const auto registry = registry_of({tool});
  {
    HostToolRun run(registry, {});
    EXPECT_FALSE(run.dispatch("waits", "{}").ok());
  }
  EXPECT_EQ(registry->abandoned_calls(), 0U);
}

TEST(HostToolRun, TellsAFunctionToStopWhenItsRunIsOver) {
  std::promise<void> begun;
  const auto registry =
      registry_of({tool_of("waits", [&](const auto&, const HostToolContext& context) {
        begun.set_value();
        Gate stopped;
        const std::stop_callback open(context.stop, [&] { stopped.open(); });
        stopped.pass();
        return boost::json::value(1);
      })});
  HostToolRun run(registry, {.close_patience = std::chrono::seconds(60)});
  auto answer = std::async(std::launch::async, [&] { return run.dispatch("waits", "{}"); });
  begun.get_future().wait();
  run.close();
  EXPECT_EQ(answer.get().text(), "Error: the run is over.");
  EXPECT_EQ(registry->abandoned_calls(), 0U);
}

TEST(HostToolRun, WhatAnAnswerHeldEndsWithItNotWithALateFunction) {
  Gate gate;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  stuck.timeout = milliseconds(500);
  HostToolRun run(registry_of({stuck}), {});
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  run.crew().post([&run, held = std::move(held)]() mutable {
    run.dispatch("stuck", "{}", 0, [held = std::move(held)](const HostToolAnswer&) {});
  });
  gate.await(1);
  while (!watched.expired()) std::this_thread::yield();
  gate.open();
}

TEST(HostToolRun, AWaitingCallsTimeIsOverToo) {
  Gate gate;
  HostTool tool = tool_of("one", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  tool.max_concurrency = 1;
  tool.timeout = std::chrono::hours(1);
  std::atomic<int> begun = 0;
  HostTool brief =
      tool_of("echo", [&](const auto&, const auto&) { return boost::json::value(++begun); });
  brief.timeout = milliseconds(20);
  HostToolRun run(registry_of({tool, brief}), {.max_parallel_calls = 1});
  auto held = std::async(std::launch::async, [&] { return run.dispatch("one", "{}"); });
  gate.await(1);
  EXPECT_NE(run.dispatch("echo", "{}").text().find("did not answer within"), std::string::npos);
  gate.open();
  EXPECT_TRUE(held.get().ok());
  // One that was refused is not begun once there is room.
  EXPECT_TRUE(run.dispatch("one", "{}").ok());
  EXPECT_EQ(begun, 0);
  EXPECT_EQ(run.counters(), (HostToolCounters{3, 2, 2}));
}

TEST(HostToolRun, EveryCallEndsByItsOwnTimeWhateverOthersHave) {
  Gate gate;
  std::vector<HostTool> tools;
  const auto add = [&](const char* name, std::chrono::nanoseconds timeout) {
    tools.push_back(tool_of(name, [&](const auto&, const auto&) {
      gate.pass();
      return boost::json::value(1);
    }));
    tools.back().timeout = timeout;
  };
  add("brief", milliseconds(300));
  add("later", milliseconds(500));
  add("patient", std::chrono::hours(1));
  HostToolRun run(registry_of(tools), {});
  std::vector<std::future<HostToolAnswer>> answers;
  for (const HostTool& tool : tools) {
    answers.push_back(
        std::async(std::launch::async, [&] { return run.dispatch(tool.name, "{}"); }));
    gate.await(static_cast<int>(answers.size()));
  }
  EXPECT_NE(answers[0].get().text().find("did not answer within 0.3"), std::string::npos);
  EXPECT_NE(answers[1].get().text().find("did not answer within 0.5"), std::string::npos);
  gate.open();
  EXPECT_TRUE(answers[2].get().ok());
}

TEST(HostToolRun, BeginsNothingMoreWhenTooManyFunctionsDoNotComeBack) {
  Gate gate;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  stuck.timeout = milliseconds(1);
  const auto registry = registry_of({stuck, echo()}, {.max_host_tool_calls_per_run = 1000,
                                                      .response_limits = {kMiB, kMiB, 1000}});
  HostToolRun run(registry, {});
  // One whose time was over before it had begun is none of them.
  for (int i = 0; i < 900 && registry->abandoned_calls() < kMaxAbandonedCalls; ++i) {
    run.dispatch("stuck", "{}");
  }
  EXPECT_EQ(registry->abandoned_calls(), kMaxAbandonedCalls);
  EXPECT_NE(run.dispatch("echo", "{}").text().find("calls that do not end"), std::string::npos);
  gate.open();
}

TEST(HostToolRun, ACallAfterTheEndIsRefusedAndNotCounted) {
  HostToolRun run(registry_of({echo()}), {});
  run.close();
  run.close();
  EXPECT_EQ(run.dispatch("echo", "{}").text(), "Error: the run is over.");
  EXPECT_EQ(run.counters(), HostToolCounters{});
}

TEST(HostToolRun, TheEndWaitsOnceForAFunctionThatDoesNotComeBackAndSaysSoOnce) {
  const auto gate = std::make_shared<Gate>();
  KeptLog log;
  {
    HostToolRun run(registry_of({tool_of("stuck",
                                         [gate](const auto&, const auto&) {
                                           gate->pass();
                                           return boost::json::value(1);
                                         })}),
                    {.log = log.hook(), .close_patience = milliseconds(20)});
    auto answer = std::async(std::launch::async, [&] { return run.dispatch("stuck", "{}"); });
    gate->await(1);
    run.close();
    EXPECT_FALSE(answer.get().ok());
    run.close();
  }
  const std::string text = log.text();
  const auto said = text.find("left to themselves");
  ASSERT_NE(said, std::string::npos);
  EXPECT_EQ(text.find("left to themselves", said + 1), std::string::npos) << text;
  gate->open();
}

TEST(HostToolRun, ACallThatWasOnItsWayAtTheEndIsRefusedAndNotCounted) {
  HostToolRun run(registry_of({echo()}), {});
  run.close();
  // As a thread of the crew does that had read the call by then.
  std::string text;
  run.dispatch("echo", "{}", 0, [&](const HostToolAnswer& answer) { text = answer.text(); });
  EXPECT_EQ(text, "Error: the run is over.");
  EXPECT_EQ(run.counters(), HostToolCounters{});
}

TEST(HostToolRun, TheEndAnswersEveryCallAndWaitsForNobodyForEver) {
  const auto gate = std::make_shared<Gate>();
  KeptLog log;
  const auto registry = registry_of({tool_of("stuck", [gate](const auto&, const auto&) {
    gate->pass();
    return boost::json::value(1);
  })});
  std::vector<std::future<HostToolAnswer>> answers;
  HostToolRun run(registry,
                  {.log = log.hook(), .max_parallel_calls = 2, .close_patience = milliseconds(1)});
  for (int i = 0; i < 4; ++i) {
    answers.push_back(std::async(std::launch::async, [&] { return run.dispatch("stuck", "{}"); }));
  }
  gate->await(2);
  run.close();
  for (auto& answer : answers) EXPECT_EQ(answer.get().text(), "Error: the run is over.");
  EXPECT_NE(log.text().find("2 functions were told to stop"), std::string::npos) << log.text();
  EXPECT_EQ(registry->abandoned_calls(), 2U);
  gate->open();
  log.await("came back");
}

TEST(HostToolRun, ObserversSeeEveryCallAndItsAnswerOnce) {
  std::mutex mutex;
  std::vector<std::string> seen;
  HostToolRegistryOptions options;
  options.observer = [&](const HostToolEvent& event) {
    const std::string begun = event.caller.run_id + " " + std::string(event.name);
    const std::lock_guard lock(mutex);
    seen.push_back(begun);
    return [&, begun](const HostToolAnswer& answer) {
      const std::lock_guard again(mutex);
      seen.push_back(begun + ": " + answer.text());
    };
  };
  HostToolRun run(registry_of({echo()}, options), {.id = "r1"});
  run.dispatch("echo", "{}");
  run.dispatch("other", "{}");
  EXPECT_EQ(seen, (std::vector<std::string>{"r1 echo", "r1 echo: {}", "r1 other",
                                            "r1 other: Error: there is no host tool 'other'."}));
}

TEST(HostToolRun, AnObserverThatWaitsHoldsUpItsOwnCallAlone) {
  Gate arrival;
  Gate answer;
  HostToolRegistryOptions options;
  options.observer = [&](const HostToolEvent& event) -> std::function<void(const HostToolAnswer&)> {
    if (event.name == "arrival") arrival.pass();
    if (event.name == "unknown" || event.name == "stuck") {
      return [&](const HostToolAnswer&) { answer.pass(); };
    }
    return {};
  };
  Gate gate;
  HostTool stuck = tool_of("stuck", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value(1);
  });
  stuck.timeout = milliseconds(20);
  HostTool late = stuck;
  late.name = "late";
  HostToolRun run(registry_of({echo(), stuck, late}, options), {});
  std::vector<std::future<HostToolAnswer>> held;
  for (const char* name : {"arrival", "unknown", "stuck", "stuck"}) {
    held.push_back(std::async(std::launch::async, [&, name] { return run.dispatch(name, "{}"); }));
  }
  arrival.await(1);
  answer.await(3);
  EXPECT_EQ(run.dispatch("echo", "{}").text(), "{}");
  EXPECT_NE(run.dispatch("late", "{}").text().find("did not answer within"), std::string::npos);
  gate.open();
  arrival.open();
  answer.open();
  for (auto& each : held) EXPECT_FALSE(each.get().ok());
}

TEST(HostToolRun, ContainsWhatObserversThrow) {
  KeptLog log;
  int enters = 0;
  HostToolRegistryOptions options;
  options.observer = [&](const HostToolEvent&) -> std::function<void(const HostToolAnswer&)> {
    if (++enters == 1) throw std::runtime_error("on entry");
    return [](const HostToolAnswer&) { throw std::runtime_error("on exit"); };
  };
  HostToolRun run(registry_of({echo()}, options), {.log = log.hook()});
  EXPECT_TRUE(run.dispatch("echo", "{}").ok());
  EXPECT_TRUE(run.dispatch("echo", "{}").ok());
  EXPECT_NE(log.text().find("the observer failed: on entry"), std::string::npos);
  EXPECT_NE(log.text().find("the observer failed: on exit"), std::string::npos);
}

TEST(HostToolRun, AFreshRunHasAFreshId) {
  const auto registry = registry_of({});
  EXPECT_NE(HostToolRun(registry, {}).id(), HostToolRun(registry, {}).id());
  EXPECT_EQ(HostToolRun(registry, {.id = "mine"}).id(), "mine");
}

TEST(HostToolRun, AForkedChildOfTheHostLeavesItAlone) {
  auto run = std::make_unique<HostToolRun>(registry_of({echo()}), HostToolRunOptions{});
  const pid_t child = fork();
  if (child == 0) {
    run.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(run->dispatch("echo", "{}").ok());
}

}  // namespace
}  // namespace casemate
