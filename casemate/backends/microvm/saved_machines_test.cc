#include "casemate/backends/microvm/saved_machines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "casemate/sys/unique_fd.h"

namespace casemate::microvm {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

class SavedMachines : public testing::Test {
 protected:
  SavedMachines() {
    char name[] = "/tmp/casemate-saved-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~SavedMachines() override { fs::remove_all(directory_); }

  static SavedMachineParts parts(const std::string& image = "a") {
    return {.host = "host",
            .hypervisor = "qemu",
            .boot = "boot",
            .image = std::string(64 - image.size(), '0') + image,
            .arguments = {"-m", "960M"}};
  }
  SavedMachinesRule rule(std::size_t most = 10) const {
    return {.maker = maker_of(parts()),
            .has_image = [](std::string_view image) { return !image.ends_with("dead"); },
            .unused = hours(24),
            .unused_of_another_maker = hours(2),
            .most = most};
  }
  std::string add(const SavedMachineParts& of, hours ago) {
    return add_named(saved_machine_name(of), ago);
  }
  std::string add_named(const std::string& name, hours ago) {
    const std::string path = directory_ / name;
    std::ofstream(path) << "saved";
    const timespec when{.tv_sec = time(nullptr) - std::chrono::seconds(ago).count(), .tv_nsec = 0};
    const timespec both[2] = {when, when};
    utimensat(AT_FDCWD, path.c_str(), both, 0);
    return path;
  }
  void prune(std::size_t most = 10) { prune_saved_machines(directory_.string(), rule(most)); }
  fs::path directory_;
};

TEST_F(SavedMachines, EachThingThatOneDependsOnIsInItsName) {
  std::set<std::string> names{saved_machine_name(parts())};
  const auto expect_another = [&](SavedMachineParts other, const char* what) {
    EXPECT_TRUE(names.insert(saved_machine_name(other)).second) << what;
  };
  SavedMachineParts other = parts();
  other.host += "2";
  expect_another(other, "host");
  other = parts();
  other.hypervisor += "2";
  expect_another(other, "hypervisor");
  other = parts();
  other.boot += "2";
  expect_another(other, "boot");
  expect_another(parts("b"), "image");
  other = parts();
  other.arguments = {"-m", "1024M"};
  expect_another(other, "arguments");
  other.arguments = {"-m1024M"};
  expect_another(other, "where an argument ends");
  EXPECT_EQ(maker_of(parts("b")), maker_of(parts()));
}

TEST_F(SavedMachines, WhatNobodyUsedForLongGoes) {
  const std::string old = add(parts("a"), hours(30));
  const std::string fresh = add(parts("b"), hours(1));
  prune();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

TEST_F(SavedMachines, WhatThisBuildKernelAndHypervisorCannotUseGoesSooner) {
  SavedMachineParts other = parts();
  other.hypervisor = "another";
  const std::string old = add(other, hours(3));
  other.boot = "another";
  const std::string fresh = add(other, hours(1));
  const std::string ours = add(parts(), hours(3));
  prune();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "two builds may work in turn";
  EXPECT_TRUE(fs::exists(ours));
}

TEST_F(SavedMachines, WhatWasSavedOfAnImageThatIsGoneGoes) {
  const std::string gone = add(parts("dead"), hours(0));
  const std::string there = add(parts("beef"), hours(0));
  prune();
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(fs::exists(there));
}

TEST_F(SavedMachines, OfTooManyTheNewestStay) {
  const std::string first = add(parts("1"), hours(1));
  const std::string second = add(parts("2"), hours(2));
  const std::string third = add(parts("3"), hours(3));
  mark_saved_machine_used(third);
  // Newer than all, and no saved machines.
  const std::string unfinished = add_named(".casemate-0123456789abcdef", hours(0));
  add(parts("dead"), hours(0));
  prune(2);
  EXPECT_TRUE(fs::exists(third));
  EXPECT_TRUE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second));
  EXPECT_TRUE(fs::exists(unfinished));
}

TEST_F(SavedMachines, OneThatIsBeingReadStays) {
  const std::string old = add(parts(), hours(30));
  const sys::UniqueFd reader(open(old.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(reader.get(), LOCK_SH), 0);
  prune();
  EXPECT_TRUE(fs::exists(old));
}

TEST_F(SavedMachines, ADirectoryThatIsNotThereIsNoFailure) {
  prune_saved_machines((directory_ / "missing").string(), rule());
  mark_saved_machine_used((directory_ / "missing").string());
}

}  // namespace
}  // namespace casemate::microvm
