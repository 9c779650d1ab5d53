#include "casemate/images/packed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::images {
namespace {

namespace fs = std::filesystem;

// A program stands in for mksquashfs: what is shown here is when it is run, and what becomes of
// what it leaves. That a guest can mount what the real one makes is shown by
// tests/cases/microvm_test.py.
class PackedTest : public testing::Test {
 protected:
  PackedTest() {
    fs::create_directories(scratch_ / "root/etc");
    put(scratch_ / "root/etc/name", "one");
    stand_in("echo x >> \"$0.runs\"; cat \"$1/etc/name\" > \"$2\"");
  }

  void stand_in(const std::string& script) {
    put(scratch_ / "mksquashfs", "#!/bin/sh\n" + script + "\n");
    fs::permissions(scratch_ / "mksquashfs", fs::perms::owner_all);
  }
  PackedImages packed(std::chrono::hours unused_for = std::chrono::hours(24 * 30)) const {
    return PackedImages({.directory = (scratch_ / "store").string(),
                         .mksquashfs = (scratch_ / "mksquashfs").string(),
                         .collection = {.unused_for = unused_for},
                         .clocks = [this] { return clocks_; }});
  }
  HeldImage image(std::string identity = "dir:x") const {
    HeldImage held;
    held.root =
        sys::UniqueFd(open((scratch_ / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    held.identity = std::move(identity);
    return held;
  }
  std::size_t runs() const {
    std::ifstream file(scratch_ / "mksquashfs.runs");
    std::string line;
    std::size_t count = 0;
    while (std::getline(file, line)) ++count;
    return count;
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(scratch_ / "store/packed")) {
      if (entry.path().filename() != kIdleTimesName) ++count;
    }
    return count;
  }

  Scratch scratch_;
  Clocks clocks_ = read_clocks();
};

TEST_F(PackedTest, AnImageIsPackedOnceAndReadableForEverybody) {
  const PackedImage first = packed().hold(image(), {});
  EXPECT_EQ(packed().hold(image(), {}).path, first.path);
  EXPECT_EQ(runs(), 1U);
  EXPECT_EQ(files(), 1U);
  struct stat status{};
  ASSERT_EQ(stat(first.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0444U);
  ASSERT_EQ(stat((scratch_ / "store/packed").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
}

TEST_F(PackedTest, ADirectoryThatChangedIsAnotherImage) {
  const PackedImage first = packed().hold(image(), {});
  put(scratch_ / "root/etc/other", "two");
  const PackedImage second = packed().hold(image(), {});
  EXPECT_NE(first.digest, second.digest);
  EXPECT_EQ(runs(), 2U);
}

TEST_F(PackedTest, AnImageOfTheStoreIsKnownByItsId) {
  const PackedImage first = packed().hold(image("sha256:1"), {});
  put(scratch_ / "root/etc/other", "two");
  EXPECT_EQ(packed().hold(image("sha256:1"), {}).digest, first.digest);
  EXPECT_NE(packed().hold(image("sha256:2"), {}).digest, first.digest);
}

TEST_F(PackedTest, OneThatChangesWhileItIsPackedIsNotKept) {
  stand_in("echo changed > \"$1/etc/changed\"; echo packed > \"$2\"");
  expect_refusal<SandboxUnavailable>([&] { packed().hold(image(), {}); }, "changed while");
  EXPECT_EQ(files(), 0U);
}

TEST_F(PackedTest, AFailureSaysWhatTheProgramSaidAndLeavesNothing) {
  stand_in("echo half > \"$2\"; echo no room here >&2; exit 3");
  expect_refusal<SandboxUnavailable>([&] { packed().hold(image(), {}); },
                                     {"exit 3", "no room here"});
  EXPECT_EQ(files(), 0U);
}

TEST_F(PackedTest, AMissingProgramIsNamedWithThePackageThatHasIt) {
  fs::remove(scratch_ / "mksquashfs");
  expect_refusal<SandboxImageNotSupported>([&] { packed().hold(image(), {}); },
                                           {"mksquashfs", "squashfs-tools"});
  EXPECT_EQ(files(), 0U);
}

TEST_F(PackedTest, ACallThatIsCancelledOrLateEndsTheProgram) {
  stand_in("echo half > \"$2\"; exec sleep 1000");
  CallControl late;
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  expect_refusal<SandboxTimeout>([&] { packed().hold(image(), late); }, "packed");
  std::stop_source source;
  source.request_stop();
  CallControl cancelled;
  cancelled.stop = source.get_token();
  expect_refusal<SandboxCancelled>([&] { packed().hold(image(), cancelled); }, "packed");
  EXPECT_EQ(files(), 0U);
}

TEST_F(PackedTest, ADirectoryThatNothingRanFromGoesWhenAnotherIsPacked) {
  const auto pass_two_days = [this] {
    clocks_.running += std::chrono::hours(48);
    clocks_.wall += std::chrono::hours(48);
  };
  const PackedImage old = packed().hold(image(), {});
  const PackedImage of_store = packed().hold(image("sha256:1"), {});
  pass_two_days();
  put(scratch_ / "root/etc/more", "three");
  const PackedImage fresh = packed(std::chrono::hours(24)).hold(image(), {});
  EXPECT_FALSE(fs::exists(old.path));
  EXPECT_TRUE(fs::exists(of_store.path)) << "it goes with its image";
  EXPECT_TRUE(fs::exists(fresh.path));
  pass_two_days();
  packed().hold(image(), {});
  // Nobody knows how long nothing was used, by a clock that was set since.
  clocks_.wall += std::chrono::hours(24 * 3650);
  put(scratch_ / "root/etc/even_more", "four");
  packed(std::chrono::hours(24)).hold(image(), {});
  EXPECT_TRUE(fs::exists(fresh.path)) << "it was used now";
  EXPECT_TRUE(is_packed((scratch_ / "store").string(), fresh.digest));
  EXPECT_FALSE(is_packed((scratch_ / "store").string(), old.digest));
}

TEST_F(PackedTest, WhatIsPackedLiesInThisUsersOwnDirectoryAlone) {
  packed().hold(image(), {});
  struct stat status{};
  for (const char* part : {"store", "store/packed"}) {
    ASSERT_EQ(stat((scratch_ / part).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U) << part;
  }
  fs::permissions(scratch_ / "store", fs::perms(0755));
  EXPECT_THROW(packed().hold(image(), {}), SandboxUnavailable);
  fs::permissions(scratch_ / "store", fs::perms(0700));
  fs::rename(scratch_ / "store/packed", scratch_ / "elsewhere");
  fs::create_directory_symlink(scratch_ / "elsewhere", scratch_ / "store/packed");
  EXPECT_THROW(packed().hold(image(), {}), SandboxUnavailable);
}

}  // namespace
}  // namespace casemate::images
