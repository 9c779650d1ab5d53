#include "casemate/sys/beneath.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "casemate/sys/without_call_test.h"
#include "tests/support/scratch.h"

namespace casemate::sys {
namespace {

namespace fs = std::filesystem;

class OpenBeneath : public testing::TestWithParam<BeneathMethod> {
 protected:
  OpenBeneath() {
    put(scratch_ / "root/sub/file", "inside");
    put(scratch_ / "root-evil/file", "outside");
    fs::create_symlink("file", scratch_ / "root/sub/link");
    fs::create_symlink("sub", scratch_ / "root/dirlink");
    fs::create_symlink("../root-evil", scratch_ / "root/evil");
    root_ = open_path((scratch_ / "root").native(), O_PATH | O_DIRECTORY);
  }

  // 0, or the errno thrown.
  int error_of(std::string_view path, int flags = O_RDONLY) {
    try {
      const UniqueFd opened = open_beneath(root_.get(), path, flags, GetParam());
      EXPECT_NE(fcntl(opened.get(), F_GETFD) & FD_CLOEXEC, 0);
      return 0;
    } catch (const std::system_error& error) {
      return error.code().value();
    }
  }

  Scratch scratch_;
  UniqueFd root_;
};

TEST_P(OpenBeneath, OpensWhatLiesBelow) {
  EXPECT_EQ(error_of("sub/file"), 0);
  EXPECT_EQ(error_of("./sub//file"), 0);
  EXPECT_EQ(error_of("sub", O_RDONLY | O_DIRECTORY), 0);
  EXPECT_EQ(error_of(".", O_PATH | O_DIRECTORY), 0);
  const UniqueFd file = open_beneath(root_.get(), "sub/file", O_RDONLY, GetParam());
  EXPECT_EQ(read_at_most(file.get(), 6), "inside");
}

TEST_P(OpenBeneath, FollowsNoLinkAnywhereInThePath) {
  EXPECT_EQ(error_of("sub/link"), ELOOP);
  EXPECT_EQ(error_of("sub/link", O_PATH), ELOOP);
  EXPECT_EQ(error_of("dirlink/file"), ELOOP);
  EXPECT_EQ(error_of("dirlink", O_PATH | O_DIRECTORY), ELOOP);
  EXPECT_EQ(error_of("evil/file"), ELOOP);
}

TEST_P(OpenBeneath, RefusesEveryWayUpEvenOneThatStaysInside) {
  EXPECT_EQ(error_of(".."), EXDEV);
  EXPECT_EQ(error_of("../root-evil/file"), EXDEV);
  EXPECT_EQ(error_of("sub/../sub/file"), EXDEV);
  EXPECT_EQ(error_of("/"), EXDEV);
  EXPECT_EQ(error_of("/etc/hostname"), EXDEV);
}

TEST_P(OpenBeneath, RefusesEmptyPathsAndHiddenEnds) {
  EXPECT_EQ(error_of(""), EINVAL);
  EXPECT_EQ(error_of(std::string_view("sub/file\0x", 10)), EINVAL);
}

TEST_P(OpenBeneath, SaysWhatIsMissingOrNoDirectory) {
  EXPECT_EQ(error_of("nothing"), ENOENT);
  EXPECT_EQ(error_of("nothing/file"), ENOENT);
  EXPECT_EQ(error_of("sub/file/x"), ENOTDIR);
  EXPECT_EQ(error_of("sub/file", O_RDONLY | O_DIRECTORY), ENOTDIR);
}

INSTANTIATE_TEST_SUITE_P(Methods, OpenBeneath,
                         testing::Values(BeneathMethod::kernel, BeneathMethod::by_component),
                         [](const auto& chosen) {
                           return chosen.param == BeneathMethod::kernel ? "kernel" : "by_component";
                         });

TEST(OpenBeneathOldKernel, WorksWhereOpenat2IsMissingOrFiltered) {
  const Scratch scratch;
  put(scratch / "sub/file", "inside");
  fs::create_symlink("file", scratch / "sub/link");
  const UniqueFd root = open_path(scratch.path().native(), O_PATH | O_DIRECTORY);
  for (const int error_number : {ENOSYS, EPERM}) {
    without_call(SYS_openat2, error_number, 0, [&] {
      EXPECT_EQ(syscall(SYS_openat2, root.get(), "sub", nullptr, 0), -1);
      EXPECT_EQ(errno, error_number);
      EXPECT_EQ(read_at_most(open_beneath(root.get(), "sub/file", O_RDONLY).get(), 6), "inside");
      EXPECT_THROW(open_beneath(root.get(), "sub/link", O_RDONLY), std::system_error);
    });
  }
}

TEST(IsWithin, ComparesDirectoriesAndNotTheirSpellings) {
  const Scratch scratch;
  fs::create_directories(scratch / "a/b/c");
  fs::create_directories(scratch / "a/b2");
  fs::create_directory_symlink("a/b/c", scratch / "link");
  const auto held = [&](const char* name) {
    return open_path((scratch / name).native(), O_PATH | O_DIRECTORY);
  };
  EXPECT_TRUE(is_within(held("a/b").get(), held("a/b").get()));
  EXPECT_TRUE(is_within(held("a/b/c").get(), held("a").get()));
  EXPECT_TRUE(is_within(held("link").get(), held("a/b").get()));
  EXPECT_FALSE(is_within(held("a").get(), held("a/b").get()));
  EXPECT_FALSE(is_within(held("a/b2").get(), held("a/b").get()));
  EXPECT_TRUE(is_within(held("a").get(), open_path("/", O_PATH | O_DIRECTORY).get()));
}

TEST(ReadDirectory, GivesEveryEntryWithItsTypeUpToTheBound) {
  const Scratch scratch;
  put(scratch / "file", "x");
  fs::create_directory(scratch / "sub");
  fs::create_symlink("nowhere", scratch / "link");
  const auto read = [&](std::size_t max) {
    return read_directory(open_path(scratch.path().native(), O_RDONLY | O_DIRECTORY), max);
  };
  std::set<std::string> seen;
  for (const DirectoryEntry& entry : read(3)) {
    seen.insert(entry.name + (entry.type == DT_REG   ? " file"
                              : entry.type == DT_DIR ? " directory"
                              : entry.type == DT_LNK ? " link"
                                                     : " ?"));
  }
  EXPECT_THAT(seen, testing::ElementsAre("file file", "link link", "sub directory"));
  EXPECT_EQ(read(2).size(), 2U);
  EXPECT_EQ(read(0).size(), 0U);
}

TEST(ReadAtMost, TakesTheCapAndNotOneByteMore) {
  const Scratch scratch;
  for (const std::size_t size : {0U, 1U, 65535U, 65536U, 65537U, 200000U}) {
    const std::string content(size, 'x');
    put(scratch / "file", content);
    const auto read = [&](std::uint64_t max) {
      return read_at_most(open_path((scratch / "file").native(), O_RDONLY).get(), max);
    };
    EXPECT_EQ(read(size), content) << size;
    EXPECT_EQ(read(size + 1), content) << size;
    EXPECT_EQ(read(UINT64_MAX), content) << size;
    if (size > 0) {
      EXPECT_EQ(read(size - 1), std::nullopt) << size;
      EXPECT_EQ(read(0), std::nullopt) << size;
    }
  }
}

TEST(ReadAtMost, StopsAtTheCapOfAFileWithoutEnd) {
  const UniqueFd zeros = open_path("/dev/zero", O_RDONLY);
  EXPECT_EQ(read_at_most(zeros.get(), 1 << 20), std::nullopt);
}

}  // namespace
}  // namespace casemate::sys
