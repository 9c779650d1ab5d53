// A sandbox that waits for its next use may have been made by another build of Casemate: it is
// still listed, ended and never taken for one's own, however much of its record this build can
// read.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>

#include "casemate/core/spec.h"
#include "tests/linux/linux_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace json = boost::json;

enum class Build { older, newer, unreadable };

class LinuxOtherBuild : public LinuxTest, public testing::WithParamInterface<Build> {
 protected:
  // One that this process holds, as if that build had made it. Not by `acquire`: who disposes one
  // with an unreadable record leaves its control groups to its keeper, which is not waited for.
  void make() {
    sandbox_ = backend().acquire(key(), spec(), {});
    directory_ = sandbox_directories().at(0);
    rewrite([](json::object& record) {
      if (GetParam() == Build::newer) {
        record["version"] = 2;
        return;
      }
      json::object old;
      for (const char* name : {"version", "id", "scope", "thread_id", "agent_dir", "kind",
                               "fingerprint", "image", "work_dir", "created"}) {
        old[name] = record[name];
      }
      record = std::move(old);
    });
    if (GetParam() == Build::unreadable) std::ofstream(directory_ / "record.json") << "\xff{";
  }

  template <typename Change>
  void rewrite(Change change) {
    std::ifstream file(directory_ / "record.json");
    json::value record = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    change(record.as_object());
    std::ofstream(directory_ / "record.json") << json::serialize(record);
  }

  bool readable() const { return GetParam() != Build::unreadable; }
  // What it is called by this build.
  std::string name() const {
    return readable() ? sandbox_->info().id : directory_.filename().string();
  }

  std::shared_ptr<Sandbox> sandbox_;
  fs::path directory_;
};

TEST_P(LinuxOtherBuild, IsListedAndEndedByWhatItIsCalled) {
  make();
  const auto other = another_backend();
  const auto records = other->list();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].id, name());
  EXPECT_EQ(records[0].key, readable() ? key() : SandboxKey{});
  EXPECT_EQ(records[0].kind, readable() ? "test" : "");
  EXPECT_LT(records[0].age, 1h);
  EXPECT_TRUE(other->dispose_id(name()));
  EXPECT_TRUE(other->list().empty());
  expect_refusal<SandboxUnavailable>([&] { sandbox_->exec(shell("true"), {}); });
}

TEST_P(LinuxOtherBuild, IsEndedWithItsConversationWhereItSaysWhichThatIs) {
  make();
  const auto other = another_backend();
  EXPECT_EQ(other->dispose_scope("", ""), 0) << "what says nothing is nobody's";
  EXPECT_EQ(other->dispose_scope("scope", "thread"), readable() ? 1 : 0);
  EXPECT_EQ(other->list().size(), readable() ? 0U : 1U);
}

TEST_P(LinuxOtherBuild, IsRefusedWhileItIsBusyAndReplacedOnceItIsIdle) {
  make();
  const std::string first = sandbox_->info().id;
  auto call = sandbox_->open_call({}, {});
  const auto other = another_backend();
  expect_refusal<SandboxBusy>([&] { other->acquire(key(), spec(), {}); }, name());
  EXPECT_EQ(call->exec(shell("echo alive"), {}).stdout, "alive\n");
  call->close();
  call.reset();
  const auto second = other->acquire(key(), spec(), {});
  EXPECT_FALSE(second->info().reused);
  EXPECT_NE(second->info().id, first);
  EXPECT_EQ(second->exec(shell("echo alive"), {}).stdout, "alive\n");
  EXPECT_EQ(other->list().size(), 1U);
  EXPECT_EQ(other->dispose(key()), 1);
}

TEST_P(LinuxOtherBuild, IsNotAttachedToAndTheRefusalSaysWhatReplacesIt) {
  make();
  const auto other = another_backend();
  expect_refusal<SandboxUnavailable>([&] { other->attach(key(), "test", {}); },
                                     {name(), "another build", "casemate run", "casemate rm"});
  EXPECT_EQ(sandbox_->exec(shell("echo alive"), {}).stdout, "alive\n");
}

INSTANTIATE_TEST_SUITE_P(Records, LinuxOtherBuild,
                         testing::Values(Build::older, Build::newer, Build::unreadable),
                         [](const auto& build) -> std::string {
                           switch (build.param) {
                             case Build::older:
                               return "Older";
                             case Build::newer:
                               return "Newer";
                             case Build::unreadable:
                               break;
                           }
                           return "Unreadable";
                         });

using LinuxOtherClock = LinuxTest;

TEST_F(LinuxOtherClock, AnAgeByAClockThatIsAheadIsNone) {
  const auto sandbox = acquire(key(), spec());
  const fs::path record = sandbox_directories().at(0) / "record.json";
  std::ifstream file(record);
  json::value value = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  value.as_object()["created"] = std::numeric_limits<std::uint64_t>::max();
  std::ofstream(record) << json::serialize(value);
  const auto records = another_backend()->list();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].age, 0s);
}

}  // namespace
}  // namespace casemate::linux_tests
