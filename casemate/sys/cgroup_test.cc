#include "casemate/sys/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace casemate::sys {
namespace {

// Directories in place of groups: the kernel's files in a group go with it, so none are made.
class ControlGroupRemoval : public testing::Test {
 protected:
  ControlGroupRemoval() {
    char name[] = "/tmp/casemate-cgroup-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~ControlGroupRemoval() override { std::filesystem::remove_all(root_); }
  std::filesystem::path root_;
};

TEST_F(ControlGroupRemoval, RemovesAGroupAndThoseBelowIt) {
  std::filesystem::create_directories(root_ / "g" / "call-1" / "deeper");
  std::filesystem::create_directories(root_ / "g" / "call-2");
  EXPECT_EQ(remove_control_group(root_ / "g"), 0);
  EXPECT_FALSE(std::filesystem::exists(root_ / "g"));
}

TEST_F(ControlGroupRemoval, AMissingOneIsRemoved) {
  EXPECT_EQ(remove_control_group(root_ / "none"), 0);
}

TEST_F(ControlGroupRemoval, SaysWhatStays) {
  std::filesystem::create_directories(root_ / "g" / "busy");
  std::ofstream(root_ / "g" / "busy" / "member") << "";  // stands for a process in it
  EXPECT_EQ(remove_control_group(root_ / "g"), ENOTEMPTY);
  EXPECT_TRUE(std::filesystem::exists(root_ / "g" / "busy"));
}

TEST_F(ControlGroupRemoval, NeverGoesThroughALink) {
  std::filesystem::create_directories(root_ / "other" / "inner");
  std::filesystem::create_directories(root_ / "g");
  std::filesystem::create_directory_symlink(root_ / "other", root_ / "g" / "link");
  EXPECT_NE(remove_control_group(root_ / "g"), 0);
  EXPECT_TRUE(std::filesystem::exists(root_ / "other" / "inner"));
}

}  // namespace
}  // namespace casemate::sys
