#include "casemate/backends/microvm/saved_machines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

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

  std::string add(const std::string& name, hours ago) {
    const std::string path = directory_ / name;
    std::ofstream(path) << "saved";
    const timespec when{.tv_sec = time(nullptr) - std::chrono::seconds(ago).count(), .tv_nsec = 0};
    const timespec both[2] = {when, when};
    utimensat(AT_FDCWD, path.c_str(), both, 0);
    return path;
  }
  fs::path directory_;
};

TEST_F(SavedMachines, WhatNobodyUsedForLongGoes) {
  const std::string old = add("old", hours(30));
  const std::string fresh = add("fresh", hours(1));
  prune_saved_machines(directory_.string(), hours(24), 10);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

TEST_F(SavedMachines, OfTooManyTheNewestStay) {
  const std::string first = add("first", hours(1));
  const std::string second = add("second", hours(2));
  const std::string third = add("third", hours(3));
  mark_saved_machine_used(third);
  prune_saved_machines(directory_.string(), hours(24), 2);
  EXPECT_TRUE(fs::exists(third));
  EXPECT_TRUE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second));
}

TEST_F(SavedMachines, OneThatIsBeingReadStays) {
  const std::string old = add("old", hours(30));
  const sys::UniqueFd reader(open(old.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(reader.get(), LOCK_SH), 0);
  prune_saved_machines(directory_.string(), hours(24), 10);
  EXPECT_TRUE(fs::exists(old));
}

TEST_F(SavedMachines, ADirectoryThatIsNotThereIsNoFailure) {
  prune_saved_machines((directory_ / "missing").string(), hours(1), 1);
  mark_saved_machine_used((directory_ / "missing").string());
}

}  // namespace
}  // namespace casemate::microvm
