#include "apps/casemate/out_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace casemate::app {
namespace {

namespace fs = std::filesystem;

class OutDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "out-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(OutDirectoryTest, RemovesWhatWasNotThereBefore) {
  {
    const OutDirectory out(root_ / "a" / "b/");
    fs::create_directories(root_ / "a" / "b");
  }
  EXPECT_FALSE(fs::exists(root_ / "a"));
  EXPECT_TRUE(fs::exists(root_));
}

TEST_F(OutDirectoryTest, KeepsWhatWasThereWhatIsNotEmptyAndWhatItIsTold) {
  fs::create_directories(root_ / "there");
  {
    const OutDirectory out(root_ / "there");
  }
  EXPECT_TRUE(fs::exists(root_ / "there"));
  {
    const OutDirectory out(root_ / "full");
    fs::create_directories(root_ / "full");
    std::ofstream(root_ / "full" / "file") << "x";
  }
  EXPECT_TRUE(fs::exists(root_ / "full" / "file"));
  {
    OutDirectory out(root_ / "kept");
    fs::create_directories(root_ / "kept");
    out.keep();
  }
  EXPECT_TRUE(fs::exists(root_ / "kept"));
}

}  // namespace
}  // namespace casemate::app
