#include "casemate/images/growth.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/scratch.h"

namespace casemate::images {
namespace {

namespace fs = std::filesystem;

class GrowthTest : public testing::Test {
 protected:
  sys::UniqueFd open_scratch() const {
    return sys::UniqueFd(open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  static void append(const fs::path& path, std::size_t bytes) {
    std::ofstream(path, std::ios::app | std::ios::binary) << std::string(bytes, 'x');
  }
  static bool has_more(const Growth& growth) {
    pollfd entry{.fd = growth.descriptor(), .events = POLLIN, .revents = 0};
    return sys::poll_until({&entry, 1}, std::chrono::steady_clock::now()) == 1;
  }

  Scratch scratch_;
};

TEST_F(GrowthTest, SeesWhatIsWrittenInDirectoriesThatComeLater) {
  const sys::UniqueFd directory = open_scratch();
  Growth growth(directory.get());
  EXPECT_FALSE(has_more(growth));
  fs::create_directories(scratch_ / "layout/blobs/sha256");
  EXPECT_TRUE(has_more(growth));
  EXPECT_EQ(growth.look(), 0U);
  EXPECT_FALSE(has_more(growth));
  append(scratch_ / "layout/blobs/sha256/a", 10);
  EXPECT_TRUE(has_more(growth));
  EXPECT_EQ(growth.look(), 10U);
  append(scratch_ / "layout/part", 5);
  EXPECT_EQ(growth.look(), 15U);
  fs::rename(scratch_ / "layout/part", scratch_ / "layout/blobs/sha256/b");
  append(scratch_ / "layout/blobs/sha256/b", 1);
  EXPECT_TRUE(has_more(growth));
  EXPECT_EQ(growth.look(), 16U);
}

TEST_F(GrowthTest, SeesAFileWithoutAName) {
  const sys::UniqueFd file(open(scratch_.path().c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  if (!file) GTEST_SKIP() << "this file system has no files without a name";
  Growth growth(file.get());
  ASSERT_EQ(write(file.get(), "abc", 3), 3);
  EXPECT_TRUE(has_more(growth));
  EXPECT_EQ(growth.look(), 3U);
}

TEST_F(GrowthTest, FollowsNoLinkAndGoesNoDeeperThanThreeLevels) {
  append(scratch_ / "elsewhere", 100);
  fs::create_directories(scratch_ / "tree/1/2/3/4");
  fs::create_symlink(scratch_ / "elsewhere", scratch_ / "tree/file");
  fs::create_directory_symlink(scratch_.path(), scratch_ / "tree/directory");
  ASSERT_EQ(mkfifo((scratch_ / "tree/fifo").c_str(), 0600), 0);
  append(scratch_ / "tree/1/2/3/in", 3);
  append(scratch_ / "tree/1/2/3/4/beyond", 50);
  const sys::UniqueFd tree(open((scratch_ / "tree").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(Growth(tree.get()).look(), 3U);
}

}  // namespace
}  // namespace casemate::images
