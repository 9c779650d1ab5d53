#include "casemate/host_tools/over_exec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/host_tools/over_exec_guest_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using in_process::Operation;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// A program that makes the calls of `requests`, waits for the answers of those numbers, and exits.
// Collects what it was answered.
std::map<std::uint64_t, std::string> answers_to(ScriptedGuest& guest,
                                                std::map<std::uint64_t, std::string> requests,
                                                std::vector<std::uint64_t> awaited) {
  std::map<std::uint64_t, std::string> answers;
  guest.step = [&](ScriptedGuest& program) {
    for (auto& [number, text] : requests) {
      if (!text.empty()) program.request(number, std::exchange(text, {}));
    }
    for (const std::uint64_t number : awaited) {
      if (const auto answer = program.response(number)) answers[number] = *answer;
    }
    if (answers.size() == awaited.size()) program.exit();
  };
  EXPECT_EQ(guest.run().result.exit_code, 0);
  return answers;
}

std::string echo_request(int n) {
  return R"({"name": "echo", "arguments": {"n": )" + std::to_string(n) + "}}";
}

TEST(OverExec, AnswersACallAndGivesBackTheStreamsApart) {
  ScriptedGuest guest;
  std::string answer;
  guest.step = [&](ScriptedGuest& program) {
    program.call_echo(1);
    if (!program.response(1)) return;
    answer = *program.response(1);
    program.print("out\n", "err\n");
    program.exit("3\n");
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(answer, R"({"value": {"n":1}})");
  EXPECT_EQ(ended.result.outcome, Outcome::exited);
  EXPECT_EQ(ended.result.exit_code, 3);
  EXPECT_EQ(ended.result.stdout, "out\n");
  EXPECT_EQ(ended.result.stderr, "err\n");
  EXPECT_FALSE(ended.result.stopped_known);  // the mark is the guest's word
  EXPECT_FALSE(ended.stop);
  EXPECT_TRUE(ended.notes.empty());
  EXPECT_TRUE(guest.kills().empty());
  EXPECT_TRUE(guest.cleaned_up());
  EXPECT_TRUE(guest.store().contains(guest.layout().work_directory()));
  EXPECT_EQ(guest.host_run().counters().delivered_bytes, 7U + 11U);
}

TEST(OverExec, AnswersInTheOrderOfTheNumbersAndWaitsForOneThatIsMissing) {
  std::vector<int> order;
  ScriptedGuest guest;
  guest.registry =
      registry_of({tool_of("echo", [&](const boost::json::object& arguments, const auto&) {
        order.push_back(static_cast<int>(arguments.at("n").as_int64()));
        return boost::json::value(1);
      })});
  int looks = 0;
  guest.step = [&](ScriptedGuest& program) {
    if (++looks == 1) {
      program.call_echo(3);
      program.call_echo(2);
    }
    if (looks == 20) {
      EXPECT_TRUE(order.empty());
      program.call_echo(1);
    }
    if (program.response(3)) program.exit();
  };
  guest.run();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(OverExec, StepsOverAnAbandonedRequestWhichCountsAgainstWhatIsReadOnly) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.max_host_tool_calls_per_run = 2});
  const auto answers = answers_to(
      guest,
      {{1, R"({"id": "0001", "abandoned": true})"}, {2, echo_request(2)}, {3, echo_request(3)}},
      {2, 3});
  EXPECT_EQ(answers.at(2), R"({"value": {"n":2}})");
  EXPECT_EQ(answers.at(3), R"({"value": {"n":3}})");
  EXPECT_EQ(guest.host_run().counters().dispatched, 2U);
  EXPECT_FALSE(guest.response(1));
}

TEST(OverExec, RefusesWhatCannotBeTakenApartWithoutCountingACall) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.response_limits = {64, kMiB, 64}});
  const auto answers = answers_to(
      guest,
      {{1, std::string(65, ' ')}, {2, std::string(62, ' ') + "{"}, {3, "\"\xff\""}, {4, "[1]"}},
      {1, 2, 3, 4});
  EXPECT_NE(answers.at(1).find("too large; one may have 64 bytes"), std::string::npos);
  EXPECT_NE(answers.at(2).find("no JSON"), std::string::npos);
  EXPECT_NE(answers.at(3).find("no JSON"), std::string::npos);
  EXPECT_NE(answers.at(4).find("must be an object"), std::string::npos);
  EXPECT_EQ(guest.host_run().counters().dispatched, 0U);
}

TEST(OverExec, ARequestAtTheBoundIsReadAndOneByteMoreIsNot) {
  const std::string call = R"({"name": "echo"})";
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.response_limits = {32, kMiB, 64}});
  const auto answers = answers_to(guest,
                                  {{1, call + std::string(32 - call.size(), ' ')},
                                   {2, call + std::string(33 - call.size(), ' ')}},
                                  {1, 2});
  EXPECT_EQ(answers.at(1), R"({"value": {}})");
  EXPECT_NE(answers.at(2).find("too large"), std::string::npos);
}

TEST(OverExec, CountsRefusedCallsAndNamesTheTypeOfANameThatIsNoString) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.max_host_tool_calls_per_run = 3});
  const auto answers = answers_to(guest,
                                  {{1, R"({"name": "nobody"})"},
                                   {2, R"({"name": [], "arguments": {}})"},
                                   {3, R"({"name": "echo", "arguments": []})"},
                                   {4, R"({"name": 1})"}},
                                  {1, 2, 3, 4});
  EXPECT_NE(answers.at(1).find("there is no host tool 'nobody'"), std::string::npos);
  EXPECT_NE(answers.at(2).find("is a string, not an array"), std::string::npos);
  EXPECT_NE(answers.at(3).find("must be an object"), std::string::npos);
  EXPECT_NE(answers.at(4).find("are used up"), std::string::npos);
}

// HT-06
TEST(OverExec, AnswersOneRequestMoreThanTheCapAndReadsNoneAfterIt) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.max_host_tool_calls_per_run = 2});
  KeptLog log;
  guest.options.log = log.hook();
  int looks_after = 0;
  std::string third;
  guest.step = [&](ScriptedGuest& program) {
    for (std::uint64_t number = 1; number <= 4; ++number) program.call_echo(number);
    if (!program.response(3)) return;
    third = *program.response(3);
    if (++looks_after == 20) {
      EXPECT_FALSE(program.response(4));
      program.exit();
    }
  };
  guest.run();
  EXPECT_NE(third.find(R"({"refusal":"Error: the 2 host tool calls of this run are used up)"),
            std::string::npos);
  EXPECT_EQ(guest.host_run().counters().dispatched, 3U);
  const std::string text = log.text();
  const std::size_t said = text.find("3 requests were read; no more are");
  EXPECT_NE(said, std::string::npos) << text;
  EXPECT_EQ(text.find("no more are", said + 30), std::string::npos) << text;
}

TEST(OverExec, TakesAnEmptyFileALinkAndADirectoryForNotYetThere) {
  ScriptedGuest guest;
  std::vector<in_process::Seed> not_yet{std::string(), EntryKind::symlink, EntryKind::directory,
                                        EntryKind::other};
  int looks = 0;
  guest.step = [&](ScriptedGuest& program) {
    ++looks;
    const std::size_t shape = static_cast<std::size_t>(looks) / 8;
    if (shape < not_yet.size()) {
      program.store().put(program.layout().request(1), not_yet[shape]);
      program.store().put(program.layout().exit_code(), not_yet[shape]);
    } else {
      program.store().erase(program.layout().exit_code());
      program.call_echo(1);
      if (program.response(1)) program.exit("4");
    }
  };
  EXPECT_EQ(guest.run().result.exit_code, 4);
  EXPECT_EQ(guest.host_run().counters().dispatched, 1U);
}

TEST(OverExec, WhatTheProgramMakesOfItsFilesCostsItCallsAndNotTheRun) {
  ScriptedGuest guest;
  std::string first;
  guest.step = [&](ScriptedGuest& program) {
    for (const int number : {1, 2, 3, 4}) program.call_echo(static_cast<std::uint64_t>(number));
    if (!program.response(4)) return;
    first = program.response(1).value_or("");
    EXPECT_FALSE(program.response(3));
    program.exit("5");
  };
  guest.before = [&](Operation operation, std::string_view path) {
    const bool reads = operation == Operation::read_file;
    const bool looks = operation == Operation::stat_file;
    if (reads && path == guest.layout().request(1)) throw SandboxFileError("denied", EACCES);
    if (looks && path == guest.layout().request(2)) throw SandboxPathRefused("through a link");
    if (operation == Operation::write_file && path == guest.layout().response(3)) {
      throw SandboxFileError("a directory", EISDIR);
    }
    // Whether the program has ended cannot be seen before it has called four times.
    if (looks && path == guest.layout().exit_code() && !guest.response(4)) {
      throw SandboxPathRefused("through a link");
    }
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.outcome, Outcome::exited);
  EXPECT_EQ(ended.result.exit_code, 5);
  EXPECT_THAT(ended.notes, testing::ElementsAre("the host tool call 1 could not be read: denied"));
  EXPECT_THAT(first, testing::HasSubstr("the request cannot be read."));
  EXPECT_EQ(guest.host_run().counters().dispatched, 2U);
}

TEST(OverExec, AnEndThatCannotBeSeenIsATimeoutThatSaysWhy) {
  ScriptedGuest guest;
  guest.options.timeout = std::chrono::milliseconds(20);
  guest.before = [&](Operation, std::string_view path) {
    if (path == guest.layout().exit_code()) throw SandboxFileError("denied", EACCES);
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.outcome, Outcome::timed_out);
  EXPECT_THAT(ended.notes, testing::Contains(testing::HasSubstr(
                               "whether the program had ended could not be seen: denied")));
}

TEST(OverExec, TakesAFileThatGoesWhileItIsReadForNotYetThere) {
  ScriptedGuest guest;
  bool gone = false;
  guest.step = [](ScriptedGuest& program) {
    program.call_echo(1);
    if (program.response(1)) program.exit();
  };
  guest.before = [&](Operation operation, std::string_view path) {
    if (operation != Operation::read_file || path != guest.layout().request(1)) return;
    if (!std::exchange(gone, true)) guest.store().erase(path);
  };
  EXPECT_EQ(guest.run().result.exit_code, 0);
  EXPECT_TRUE(gone);
}

TEST(OverExec, TakesAFileThatGrowsWhileItIsReadForTooLarge) {
  ScriptedGuest guest;
  guest.registry = registry_of({echo()}, {.response_limits = {64, kMiB, 64}});
  guest.before = [&](Operation operation, std::string_view path) {
    if (operation != Operation::read_file || path != guest.layout().request(1)) return;
    guest.store().put_file(path, std::string(65, ' '));
  };
  const auto answers = answers_to(guest, {{1, echo_request(1)}}, {1});
  EXPECT_NE(answers.at(1).find("too large"), std::string::npos);
}

TEST(OverExec, AMarkThatMakesNoSenseIsAFailedProgram) {
  for (const auto& [mark, code] : std::map<std::string, int>{{"0", 0},
                                                             {"255", 255},
                                                             {"256", 1},
                                                             {"-1", 1},
                                                             {"0x0", 1},
                                                             {"zero", 1},
                                                             {"\n", 1},
                                                             {"0" + std::string(31, '\n'), 0},
                                                             {"0" + std::string(32, '\n'), 1}}) {
    ScriptedGuest guest;
    guest.step = [&](ScriptedGuest& program) { program.exit(mark); };
    EXPECT_EQ(guest.run().result.exit_code, code) << mark;
  }
}

TEST(OverExec, TheMarkWinsOverARequestThatIsThereToo) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) {
    program.call_echo(1);
    program.exit();
  };
  guest.run();
  EXPECT_EQ(guest.host_run().counters().dispatched, 0U);
}

TEST(OverExec, AProgramThatEndsIsNotKeptWaitingForAFunction) {
  Gate gate;
  ScriptedGuest guest;
  guest.registry = registry_of({tool_of("echo", [&](const auto&, const auto&) {
    gate.pass();
    return boost::json::value();
  })});
  guest.step = [&](ScriptedGuest& program) {
    program.call_echo(1);
    if (gate.arrived() > 0) program.exit("5");
  };
  const OverExecResult ended = guest.run();
  EXPECT_EQ(ended.result.exit_code, 5);
  EXPECT_LT(ended.result.wall, guest.options.timeout / 2);
  gate.open();
}

TEST(OverExec, RefusesTheCallsOfARunThatIsOver) {
  ScriptedGuest guest;
  guest.step = [](ScriptedGuest& program) { program.exit(); };
  guest.run();
  guest.host_run().close();
  const auto answers = answers_to(guest, {{1, echo_request(1)}}, {1});
  EXPECT_EQ(answers.at(1), R"({"refusal":"Error: the run is over."})");
}

TEST(OverExec, RefusesOptionsBeforeAnythingIsTouched) {
  const auto refused = [](std::string_view part, auto spoil) {
    ScriptedGuest guest;
    guest.store().put_file(guest.layout().program(), "print(1)");
    spoil(guest.options);
    expect_refusal<InvalidArgument>([&] { guest.run(); }, part);
    EXPECT_TRUE(guest.sandbox().commands().empty());
    EXPECT_TRUE(guest.store().contains(guest.layout().program()));
  };
  refused("timeout is 0", [](OverExecOptions& options) { options.timeout = seconds(0); });
  refused("timeout is -1", [](OverExecOptions& options) { options.timeout = nanoseconds(-1); });
  refused("at most 604800",
          [](OverExecOptions& options) { options.timeout = seconds(604800) + nanoseconds(1); });
  refused("poll_interval is 0",
          [](OverExecOptions& options) { options.poll_interval = seconds(0); });
  refused("interpreter", [](OverExecOptions& options) { options.interpreter = ""; });
}

}  // namespace
}  // namespace casemate
