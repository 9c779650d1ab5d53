#include "casemate/sys/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "casemate/sys/without_call_test.h"

namespace casemate::sys {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() {
    char name[] = "/tmp/casemate-file-XXXXXX";
    path_ = mkdtemp(name);
    directory_ = open_at(AT_FDCWD, path_.c_str(), O_RDONLY | O_DIRECTORY);
  }
  ~FileTest() override { std::filesystem::remove_all(path_); }

  template <typename Act>
  static int error_of(Act&& act) {
    try {
      act();
      return 0;
    } catch (const std::system_error& error) {
      return error.code().value();
    }
  }

  std::filesystem::path path_;
  UniqueFd directory_;
};

TEST_F(FileTest, DescriptorsAreCloseOnExecFromBirth) {
  EXPECT_EQ(fcntl(directory_.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(FileTest, ReadsUpToTheBoundAndNotOneByteMore) {
  write_file_at(directory_.get(), "f", std::string(5000, 'x'), 0600);
  EXPECT_EQ(read_file_at(directory_.get(), "f", 5000), std::string(5000, 'x'));
  EXPECT_EQ(error_of([&] { read_file_at(directory_.get(), "f", 4999); }), EFBIG);
  EXPECT_EQ(error_of([&] { read_file_at(directory_.get(), "none", 10); }), ENOENT);
  EXPECT_EQ(read_file_if_there(directory_.get(), "none", 10), std::nullopt);
}

TEST_F(FileTest, WritesReplaceAndNeverFollowALink) {
  write_file_at(directory_.get(), "f", "long content", 0600);
  write_file_at(directory_.get(), "f", "short", 0600);
  EXPECT_EQ(read_file_at(directory_.get(), "f", 100), "short");
  std::filesystem::create_symlink("f", path_ / "link");
  EXPECT_EQ(error_of([&] { write_file_at(directory_.get(), "link", "x", 0600); }), ELOOP);
  EXPECT_EQ(error_of([&] { read_file_at(directory_.get(), "link", 100); }), ELOOP);
}

TEST_F(FileTest, AControlFileMustBeThere) {
  EXPECT_EQ(error_of([&] { write_control_file_at(directory_.get(), "none", "1"); }), ENOENT);
  EXPECT_EQ(error_of([&] { write_control_file_at(AT_FDCWD, "/dev/full", "1"); }), ENOSPC);
}

// As FUSE with direct I/O may: without the check this would try again for ever.
TEST_F(FileTest, AFileThatTakesNothingIsAnErrorAndNotTriedForEver) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself looks at memory by writing it somewhere";
#endif
  int error = 0;
  without_call(SYS_write, 0, 0, [&] {
    error = error_of([&] { write_file_at(directory_.get(), "f", "content", 0600); });
  });
  EXPECT_EQ(error, EIO);
  without_call(SYS_write, 0, 0, [&] {
    error = error_of([&] { write_control_file_at(directory_.get(), "f", "content"); });
  });
  EXPECT_EQ(error, EIO);
}

TEST_F(FileTest, MakesADirectoryOnce) {
  make_directory_at(directory_.get(), "d", 0700);
  make_directory_at(directory_.get(), "d", 0700);
  write_file_at(directory_.get(), "f", "", 0600);
  EXPECT_EQ(error_of([&] { make_directory_at(directory_.get(), "f/d", 0700); }), ENOTDIR);
}

TEST_F(FileTest, ListsNamesOnly) {
  write_file_at(directory_.get(), "b", "", 0600);
  make_directory_at(directory_.get(), "a", 0700);
  auto names = list_directory_at(directory_.get(), ".");
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(list_directory_at(directory_.get(), ".").size(), 2U) << "a second time too";
}

TEST_F(FileTest, ADescriptorsPathFollowsARenameAndAGoneOneHasNone) {
  make_directory_at(directory_.get(), "a", 0700);
  const UniqueFd inner = open_at(directory_.get(), "a", O_PATH | O_DIRECTORY);
  EXPECT_EQ(path_of(inner.get()), path_ / "a");
  std::filesystem::rename(path_ / "a", path_ / "b");
  EXPECT_EQ(path_of(inner.get()), path_ / "b");
  std::filesystem::remove(path_ / "b");
  EXPECT_EQ(path_of(inner.get()), std::nullopt);
}

}  // namespace
}  // namespace casemate::sys
