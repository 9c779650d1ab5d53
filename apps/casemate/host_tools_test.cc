#include "apps/casemate/host_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/host_tools/run.h"

namespace casemate::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HostTools : public ::testing::Test {
 protected:
  void SetUp() override { static_cast<void>(std::signal(SIGPIPE, SIG_IGN)); }

  HostToolAnswer call(const std::string& command, const std::string& arguments = "{}") {
    HostToolSettings settings;
    settings.tools.push_back({.name = "tool", .command = command});
    settings.timeout = timeout_;
    HostToolRun run(make_host_tools(settings, log()), {.log = log()});
    return run.dispatch("tool", arguments);
  }

  Log log() {
    return [this](LogLevel, std::string_view text) {
      const std::lock_guard lock(mutex_);
      logged_ += std::string(text) + "\n";
    };
  }

  std::chrono::nanoseconds timeout_ = std::chrono::seconds(60);
  std::mutex mutex_;
  std::string logged_;
};

TEST_F(HostTools, ACommandReadsTheArgumentsAndPrintsTheAnswer) {
  const HostToolAnswer answer = call("cat", R"({"a": ["ü", 1]})");
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(answer.text(), R"({"a":["ü",1]})");
  EXPECT_EQ(call("printf ' 7 \\n\\n'").text(), "7");
  EXPECT_EQ(call("echo null").text(), "null");
}

TEST_F(HostTools, EachAnswerIsLogged) {
  call("echo 4.25");
  EXPECT_THAT(logged_, HasSubstr("host tool 'tool' answered 4 bytes"));
  logged_.clear();
  call("exit 3");
  EXPECT_THAT(logged_, Not(HasSubstr("answered")));
}

TEST_F(HostTools, AnotherStatusThanZeroIsARefusalThatSaysNothingOfWhy) {
  const HostToolAnswer answer = call("echo 1; echo secret >&2; exit 3");
  EXPECT_FALSE(answer.ok());
  EXPECT_EQ(answer.text(), "Error: host tool 'tool' failed.");
  EXPECT_THAT(logged_, AllOf(HasSubstr("exit status 3"), HasSubstr("secret")));
}

TEST_F(HostTools, WhatACommandSaysAsideIsForTheLog) {
  const HostToolAnswer answer = call("printf 'as\\033ide' >&2; echo 1");
  EXPECT_EQ(answer.text(), "1");
  EXPECT_THAT(logged_, AllOf(HasSubstr("as\\x1bide"), Not(HasSubstr("\x1b"))));
}

TEST_F(HostTools, AnAnswerIsExactlyOneJsonValue) {
  for (const char* printed : {"", "1 2", "{} x", "{'a': 1}", "NaN", "1e999", "18446744073709551616",
                              "{\\\"a\\\": 1, \\\"a\\\": 2}", "\\\"\\377\\\""}) {
    EXPECT_EQ(call("printf \"" + std::string(printed) + "\"").text(),
              "Error: host tool 'tool' failed.")
        << printed;
  }
}

TEST_F(HostTools, ACommandThatPrintedNothingIsSaidToHavePrintedNothing) {
  EXPECT_FALSE(call("true").ok());
  EXPECT_FALSE(call("echo why >&2").ok());
  EXPECT_THAT(logged_, AllOf(HasSubstr("it printed nothing"), HasSubstr("it said: why")));
}

// HT-12: at the cap passes, one byte more is refused and the cap is named, however much it is.
TEST_F(HostTools, AnAnswerOverTheCapIsRefusedAndNamesIt) {
  const auto printing = [](std::size_t bytes) {
    return "printf '\"'; head -c " + std::to_string(bytes - 2) +
           " /dev/zero | tr '\\0' x; echo '\"'";
  };
  EXPECT_EQ(call(printing(kMaxAnswerBytes)).text().size(), kMaxAnswerBytes);
  EXPECT_THAT(call(printing(kMaxAnswerBytes + 1)).text(),
              AllOf(StartsWith("Error: "), HasSubstr("8388609"), HasSubstr("may have 8388608")));
  EXPECT_THAT(call("yes").text(), AllOf(StartsWith("Error: "), HasSubstr("may have 8388608")));
  EXPECT_THAT(logged_, HasSubstr("was killed: it went on printing after "));
}

TEST_F(HostTools, ACommandIsKilledWhenItsTimeIsOver) {
  timeout_ = std::chrono::milliseconds(100);
  EXPECT_THAT(call("sleep 600").text(), HasSubstr("did not answer within 0.1 seconds"));
}

TEST_F(HostTools, ACommandIsKilledWhenItsRunEnds) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "tool", .command = "sleep 600"});
  auto registry = make_host_tools(settings, log());
  HostToolRun run(registry, {.log = log()});
  std::jthread closer([&] {
    while (run.counters().dispatched == 0) std::this_thread::yield();
    run.close();
  });
  EXPECT_EQ(run.dispatch("tool", "{}").text().substr(0, 6), "Error:");
  closer.join();
  EXPECT_EQ(registry->abandoned_calls(), 0U);
}

TEST_F(HostTools, TheyAreUnstampedUnlessTheyAreDeclared) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "tool", .command = "cat"});
  const HostToolAggregate unstamped = make_host_tools(settings, {})->aggregate();
  EXPECT_TRUE(unstamped.has_undeclared);
  EXPECT_EQ(unstamped.identities, std::set<Identity>{Identity::app});
  EXPECT_EQ(unstamped.result_integrity, SourceIntegrity::untrusted);
  settings.tools[0].declaration =
      HostToolDeclaration{SourceIntegrity::trusted, std::nullopt, std::nullopt};
  settings.require_declared = true;
  const HostToolAggregate stamped = make_host_tools(settings, {})->aggregate();
  EXPECT_FALSE(stamped.has_undeclared);
  EXPECT_TRUE(stamped.identities.empty());
}

TEST_F(HostTools, RefusesUnstampedOnesWhereAllHaveToBeDeclared) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "tool", .command = "cat"});
  settings.require_declared = true;
  EXPECT_THROW(make_host_tools(settings, {}), HostToolNotDeclared);
}

TEST_F(HostTools, NeverActInAUsersName) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "tool", .command = "cat"});
  settings.tools[0].declaration = HostToolDeclaration{std::nullopt, std::nullopt, Identity::user};
  settings.tools[0].where = "/c.toml:1";
  settings.tools[0].identity_where = "/c.toml:4";
  try {
    make_host_tools(settings, {});
    FAIL();
  } catch (const HostToolIdentityNotAllowed& refused) {
    EXPECT_THAT(refused.message(), StartsWith("/c.toml:4: host tool 'tool' acts as user"));
    EXPECT_EQ(refused.hint(), "give identity = \"app\" or \"none\"");
  }
}

TEST_F(HostTools, ADeniedIdentityNamesTheToolThatActsUnderIt) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "pure", .command = "cat"});
  settings.tools[0].declaration = HostToolDeclaration{std::nullopt, std::nullopt, std::nullopt};
  refuse_denied_host_tools(settings, {Identity::app, Identity::user});
  settings.tools.push_back({.name = "mail", .command = "cat"});
  refuse_denied_host_tools(settings, {Identity::user});
  try {
    refuse_denied_host_tools(settings, {Identity::app});
    FAIL();
  } catch (const SandboxIdentityDenied& denied) {
    EXPECT_EQ(denied.message(),
              "host tool 'mail' acts under app, which --deny-identity denies; what is not stamped "
              "does");
  }
}

TEST_F(HostTools, ASettingThatTheRegistryDoesNotTakeNamesItsLine) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "tool",
                            .command = "cat",
                            .parameters = R"({"foo": 1})",
                            .where = "/c.toml:7",
                            .parameters_where = "/c.toml:9"});
  try {
    make_host_tools(settings, {});
    FAIL();
  } catch (const ConfigInvalid& refused) {
    EXPECT_THAT(refused.message(), StartsWith("/c.toml:9: the parameters of host tool 'tool'"));
    EXPECT_THAT(refused.hint(), HasSubstr("have the command check it"));
  }
  settings.tools[0] = {.name = std::string(100'000, 'x'), .command = "cat", .where = "/c.toml:7"};
  try {
    make_host_tools(settings, {});
    FAIL();
  } catch (const ConfigInvalid& refused) {
    EXPECT_THAT(refused.message(), StartsWith("/c.toml:7: "));
  }
}

TEST_F(HostTools, NoneIsNoRegistry) { EXPECT_EQ(make_host_tools({}, {}), nullptr); }

TEST_F(HostTools, AsManyAnswersAsCallsMayCome) {
  HostToolSettings settings;
  settings.tools.push_back({.name = "tool", .command = "cat"});
  settings.max_calls = 1000;
  EXPECT_EQ(make_host_tools(settings, {})->surface().max_calls, 1000U);
  EXPECT_EQ(make_host_tools(settings, {})->surface().response_limits.max_files, 1000U);
}

}  // namespace
}  // namespace casemate::app
