#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>

#include "casemate/policy/backends_test.h"
#include "casemate/policy/purger.h"
#include "casemate/policy/router.h"

namespace casemate {
namespace {

using testing::HasSubstr;
using Purged = std::vector<std::pair<std::string, std::string>>;

struct Two {
  std::shared_ptr<InProcessSandboxBackend> selected = backend_at("selected", Isolation::vm);
  std::shared_ptr<InProcessSandboxBackend> other = std::make_shared<InProcessSandboxBackend>(
      nullptr, in_process::InProcessBackendOptions{
                   .declarations = declared_as("other", std::nullopt), .purge_count = 2});
  SandboxRouter router{{selected, other}};
};

TEST(Disposal, OfAKeyAsksEveryRegisteredBackend) {
  const Two two;
  EXPECT_EQ(two.router.dispose(a_key()), 3);
  EXPECT_EQ(two.selected->disposed(), std::vector{a_key()});
  EXPECT_EQ(two.other->disposed(), std::vector{a_key()});
  EXPECT_EQ(SandboxRouter({}).dispose(a_key()), 0);
}

TEST(Disposal, OfAnIdEndsThatSandboxInWhicheverBackendItIs) {
  const Two two;
  SandboxSpec another = plain_spec();
  another.kind = "another";
  two.other->acquire(a_key(), plain_spec(), {});
  two.other->acquire(a_key(), another, {});
  EXPECT_TRUE(two.router.dispose_id(identity_digest(a_key(), "codeact")));
  EXPECT_FALSE(two.router.dispose_id(identity_digest(a_key(), "codeact")));
  EXPECT_TRUE(two.router.dispose_id(identity_digest(a_key(), "another"))) << "it lived on";
  EXPECT_FALSE(SandboxRouter({}).dispose_id("00"));
}

TEST(Disposal, OfAScopeAsksEveryRegisteredBackendAndSumsTheCounts) {
  const Two two;
  EXPECT_EQ(two.router.dispose_scope("tenant", "7"), 3);
  EXPECT_EQ(two.selected->purged(), (Purged{{"tenant", "7"}}));
  EXPECT_EQ(two.other->purged(), (Purged{{"tenant", "7"}}));
  EXPECT_EQ(SandboxRouter({}).dispose_scope("tenant", "7"), 0);
}

TEST(Disposal, WithTheFirstThatCanServeAsksEveryBackendToo) {
  const Two two;
  const SandboxRouter router({two.selected, two.other},
                             {.selection = Selection::first_that_can_serve});
  EXPECT_EQ(router.dispose(a_key()), 3);
  EXPECT_EQ(router.dispose_scope("tenant", "7"), 3);
}

TEST(Scope, DisposesWhenTheBlockEndsAndSaysHowMany) {
  const Two two;
  std::shared_ptr<const ScopeDisposal> disposal;
  {
    const SandboxScope scope = two.router.scope("tenant", "7");
    disposal = scope.disposal();
    two.router.acquire(a_key(), plain_spec(), {});
    EXPECT_EQ(disposal->disposed(), 0);
    EXPECT_TRUE(two.selected->purged().empty());
  }
  EXPECT_EQ(disposal->disposed(), 3);
  EXPECT_EQ(two.selected->purged(), (Purged{{"tenant", "7"}}));
}

TEST(Scope, LetsTheExceptionOfTheBlockThrough) {
  const Two two;
  std::shared_ptr<const ScopeDisposal> disposal;
  EXPECT_THROW(
      {
        const SandboxScope scope = two.router.scope("tenant", "7");
        disposal = scope.disposal();
        throw std::domain_error("the host's own");
      },
      std::domain_error);
  EXPECT_EQ(disposal->disposed(), 3);
}

TEST(Scope, OutlivesTheRouter) {
  const auto backend = backend_at("linux", Isolation::vm);
  {
    std::optional<SandboxRouter> router;
    router.emplace(std::vector<std::shared_ptr<SandboxBackend>>{backend});
    const SandboxScope scope = router->scope("tenant", "7");
    router.reset();
  }
  EXPECT_EQ(backend->purged(), (Purged{{"tenant", "7"}}));
}

TEST(Scope, DisposesOnceThoughItIsMoved) {
  const Two two;
  std::shared_ptr<const ScopeDisposal> disposal;
  {
    SandboxScope first = two.router.scope("tenant", "7");
    disposal = first.disposal();
    const SandboxScope second = std::move(first);
    EXPECT_EQ(first.disposal(), nullptr);  // NOLINT(bugprone-use-after-move): the documented state
    EXPECT_EQ(second.disposal(), disposal);
  }
  EXPECT_EQ(two.selected->purged().size(), 1U);
}

TEST(Scope, DisposesWhatItHeldWhenAnotherIsMovedIn) {
  const Two two;
  SandboxScope scope = two.router.scope("tenant", "7");
  const auto first = scope.disposal();
  scope = two.router.scope("tenant", "8");
  EXPECT_EQ(first->disposed(), 3);
  EXPECT_EQ(two.selected->purged(), (Purged{{"tenant", "7"}}));
}

TEST(Scope, DoesNothingInAForkedChild) {
  const Two two;
  std::optional<SandboxScope> scope = two.router.scope("tenant", "7");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    scope.reset();
    ::_exit(two.selected->purged().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  scope.reset();
  EXPECT_EQ(two.selected->purged().size(), 1U);
}

TEST(Purger, DisposesAndLogsACountOtherThanZero) {
  std::vector<std::string> lines;
  const Log log = [&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::info);
    lines.emplace_back(line);
  };
  const Two two;
  EXPECT_EQ(SandboxPurger(two.router, log).purge_scoped_thread("tenant", "7\n"), 3);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "purged 3 sandboxes of scope 'tenant', thread '7\\n'");
  EXPECT_EQ(two.other->purged(), (Purged{{"tenant", "7\n"}}));

  EXPECT_EQ(SandboxPurger(SandboxRouter({}), log).purge_scoped_thread("tenant", "7"), 0);
  EXPECT_EQ(lines.size(), 1U);
}

}  // namespace
}  // namespace casemate
