#include "apps/casemate/out_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

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

TEST_F(OutDirectoryTest, MayBeThereOrMissingButNotUnusable) {
  std::ofstream(root_ / "file") << "x";
  fs::create_symlink("loop", root_ / "loop");
  fs::create_symlink("nowhere", root_ / "dangling");
  fs::create_directory_symlink(".", root_ / "good");
  for (const char* usable : {"", "missing", "missing/too/", "good", "good/missing"}) {
    SCOPED_TRACE(usable);
    EXPECT_NO_THROW(refuse_unusable(root_ / usable));
  }
  const auto refused = [&](const fs::path& path, const char* part) {
    expect_refusal<InvalidArgument>([&] { refuse_unusable(path); }, {path.native(), part});
  };
  refused(root_ / "file", "is no directory");
  refused(root_ / "file/below", "Not a directory");
  refused(root_ / "loop", "symbolic links");
  refused(root_ / "loop/below", "symbolic links");
  refused(root_ / "dangling", "a link to nothing");
  refused(root_ / "dangling/below", "a link to nothing");
  refused("/proc/sys/kernel/missing", "written to");
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
