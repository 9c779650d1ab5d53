#include "casemate/tool/guest_call.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "casemate/tool/wired_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

const SandboxKey kKey{"tenant", "thread", "agent"};

SandboxSpec plain_spec() {
  SandboxSpec spec;
  spec.kind = "test";
  return spec;
}

class Reports {
 public:
  GuestCall::Owner owner() {
    return {"a tool", [this](const ReclaimFailure& failure) { failures.push_back(failure); },
            lines.log()};
  }

  std::vector<ReclaimFailure> failures;
  LogLines lines;
};

TEST(GuestCall, ClosesItsCallAndLeavesTheSandboxWarm) {
  const Wired wired;
  Reports reports;
  {
    GuestCall call = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
    EXPECT_EQ(call.work_directory(), call.call().directory() + "/work");
    EXPECT_FALSE(wired.sandbox->calls().at(0).closed);
  }
  EXPECT_TRUE(wired.sandbox->calls().at(0).closed);
  EXPECT_TRUE(wired.backend->disposed_ids().empty());
  EXPECT_TRUE(reports.failures.empty());
}

TEST(GuestCall, DisposesTheSandboxAndReportsOnceWhenTheEndIsNotKnown) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  {
    GuestCall call = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
    EXPECT_FALSE(call.close());
    EXPECT_FALSE(call.close());
    call.abandon();
  }
  EXPECT_EQ(wired.backend->disposed_ids(), std::vector{identity_digest(kKey, "test")});
  ASSERT_EQ(reports.failures.size(), 1U);
  const ReclaimFailure& failure = reports.failures.front();
  EXPECT_EQ(failure.tool, "a tool");
  EXPECT_EQ(failure.key, kKey);
  EXPECT_EQ(failure.path, wired.sandbox->calls().at(0).directory);
  EXPECT_NE(failure.reason.find("was disposed"), std::string::npos) << failure.reason;
  EXPECT_NE(reports.lines.text().find("error: a tool: /workspace/"), std::string::npos);
}

TEST(GuestCall, TellsNobodyOfAnAbandonedCallButDisposesAllTheSame) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner()).abandon();
  EXPECT_EQ(wired.backend->disposed_ids().size(), 1U);
  EXPECT_TRUE(reports.failures.empty());
}

TEST(GuestCall, LeavesASandboxOfAnotherKindUnderItsKeyAlone) {
  // LC-02
  const Wired wired({.close_is_known = false});
  Reports reports;
  SandboxSpec other = plain_spec();
  other.kind = "another";
  GuestCall call = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
  wired.router.acquire(kKey, other, {});
  EXPECT_FALSE(call.close());
  EXPECT_TRUE(wired.backend->disposed().empty()) << "that would end both";
  wired.router.acquire(kKey, other, {});
  EXPECT_TRUE(wired.sandbox->info().reused);
  wired.router.acquire(kKey, plain_spec(), {});
  EXPECT_FALSE(wired.sandbox->info().reused);
}

TEST(GuestCall, SaysWhenTheSandboxWasGoneAlready) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  GuestCall call = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
  wired.router.dispose(kKey);
  EXPECT_FALSE(call.close());
  ASSERT_EQ(reports.failures.size(), 1U);
  EXPECT_NE(reports.failures[0].reason.find("gone already"), std::string::npos);
}

TEST(GuestCall, EndsWithItsSandboxInOne) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  {
    GuestCall call = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
    EXPECT_TRUE(call.close_with_sandbox());
    EXPECT_FALSE(call.close_with_sandbox()) << "it has ended already";
    EXPECT_TRUE(call.close()) << "there is nothing left of which the end could not be shown";
  }
  EXPECT_EQ(wired.backend->disposed_ids(), std::vector{identity_digest(kKey, "test")});
  EXPECT_TRUE(reports.failures.empty());
}

TEST(GuestCall, WhoseSandboxCannotBeEndedIsClosedByItself) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  GuestCall call = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
  wired.router.dispose(kKey);
  EXPECT_FALSE(call.close_with_sandbox());
  EXPECT_EQ(reports.failures.size(), 1U);
}

TEST(GuestCall, IsClosedOnceAfterAMove) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  {
    GuestCall first = GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
    const GuestCall second = std::move(first);
  }
  EXPECT_EQ(reports.failures.size(), 1U);
}

TEST(GuestCall, ContainsWhatTheReportCallbackThrows) {
  Wired wired({.close_is_known = false});
  LogLines lines;
  const auto close_with = [&](const ReclaimCallback& callback) {
    GuestCall call =
        GuestCall::open(wired.router, kKey, plain_spec(), {}, {"a tool", callback, lines.log()});
    EXPECT_FALSE(call.close());
  };
  close_with([](const ReclaimFailure&) { throw std::runtime_error("callback broke"); });
  close_with([](const ReclaimFailure&) { throw 7; });
  EXPECT_NE(lines.text().find("callback broke"), std::string::npos);
}

TEST(GuestCall, LeavesNothingOpenWhenTheCallCannotBeOpened) {
  Wired wired({.before = [](in_process::Operation, std::string_view) {
    throw SandboxUnavailable("gone");
  }});
  Reports reports;
  expect_refusal<SandboxUnavailable>(
      [&] { GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner()); }, "gone");
  EXPECT_TRUE(wired.sandbox->calls().empty());
  EXPECT_TRUE(reports.failures.empty());
}

TEST(GuestCall, DoesNothingInAForkedChildOfTheHost) {
  const Wired wired({.close_is_known = false});
  Reports reports;
  std::optional<GuestCall> call =
      GuestCall::open(wired.router, kKey, plain_spec(), {}, reports.owner());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    call.reset();
    _exit(wired.backend->disposed_ids().empty() && reports.failures.empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(wired.sandbox->calls().at(0).closed);
}

}  // namespace
}  // namespace casemate
