#include "apps/casemate/config_owner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::app {
namespace {

constexpr uid_t kSomebodyElse = 65534;

class ConfigOwner : public testing::Test {
 protected:
  void SetUp() override {
    file_ = scratch_ / "own/casemate/casemate.toml";
    put(file_, "");
    ASSERT_EQ(chmod(file_.c_str(), 0644), 0);
  }

  void look(const std::optional<std::string>& home = std::nullopt) const {
    look_at(file_.native(), home);
  }
  static void look_at(const std::string& path, const std::optional<std::string>& home) {
    const sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file) << path;
    refuse_what_others_may_write(file.get(), path, home);
  }

  Scratch scratch_;
  std::filesystem::path file_;
};

TEST_F(ConfigOwner, AFileThatNobodyElseMayWriteIsRead) {
  EXPECT_NO_THROW(look());
  ASSERT_EQ(chmod(file_.c_str(), 0400), 0);
  EXPECT_NO_THROW(look());
}

TEST_F(ConfigOwner, AFileThatEverybodyMayWriteIsNot) {
  ASSERT_EQ(chmod(file_.c_str(), 0602), 0);
  expect_refusal<ConfigInvalid>([&] { look(); },
                                {file_.native(), "everybody", "mode 0602", "chmod go-w '",
                                 "owner " + std::to_string(geteuid())});
}

TEST_F(ConfigOwner, AFileOfAnotherUserIsNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(file_.c_str(), kSomebodyElse, 0), 0);
  expect_refusal<ConfigInvalid>([&] { look(); },
                                {"belongs to user 65534", "mode 0644", "chown 0 '"});
}

TEST_F(ConfigOwner, AGroupMayWriteWhereItIsTheOwnersAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to a group at will";
  ASSERT_EQ(chmod(file_.c_str(), 0664), 0);
  EXPECT_NO_THROW(look());  // the group root
  ASSERT_EQ(chown(file_.c_str(), 0, kSomebodyElse), 0);
  expect_refusal<ConfigInvalid>([&] { look(); }, {"group 65534", "mode 0664", "chmod g-w '"});
}

TEST_F(ConfigOwner, EveryDirectoryAboveIsHeldToTheSame) {
  for (const char* name : {"own/casemate", "own", "."}) {
    const auto directory = (scratch_ / name).lexically_normal();
    ASSERT_EQ(chmod(directory.c_str(), 0777), 0);
    expect_refusal<ConfigInvalid>([&] { look(); }, {"which it is in", "mode 0777", "chmod go-w"});
    ASSERT_EQ(chmod(directory.c_str(), 01777), 0);
    EXPECT_NO_THROW(look()) << "sticky: " << name;
    if (geteuid() == 0) {
      ASSERT_EQ(chown(directory.c_str(), kSomebodyElse, 0), 0);
      expect_refusal<ConfigInvalid>([&] { look(); }, "belongs to user 65534");
      ASSERT_EQ(chown(directory.c_str(), 0, 0), 0);
    }
    ASSERT_EQ(chmod(directory.c_str(), 0755), 0);
  }
}

TEST_F(ConfigOwner, WhatIsAboveTheHomeDirectoryIsNotLookedAt) {
  ASSERT_EQ(chmod(scratch_.path().c_str(), 0777), 0);
  EXPECT_NO_THROW(look(scratch_ / "own"));
  ASSERT_EQ(chmod((scratch_ / "own").c_str(), 0777), 0);
  expect_refusal<ConfigInvalid>([&] { look(scratch_ / "own"); }, "which it is in");
  expect_refusal<ConfigInvalid>([&] { look(scratch_ / "other"); }, "which it is in");
}

TEST_F(ConfigOwner, ALinkCountsByWhatItLeadsTo) {
  const std::string link = scratch_ / "link.toml";
  ASSERT_EQ(symlink(file_.c_str(), link.c_str()), 0);
  EXPECT_NO_THROW(look_at(link, std::nullopt));
  ASSERT_EQ(chmod((scratch_ / "own").c_str(), 0777), 0);
  expect_refusal<ConfigInvalid>([&] { look_at(link, std::nullopt); },
                                {link, (scratch_ / "own").native()});
}

TEST_F(ConfigOwner, DevicesAndPipesPass) {
  EXPECT_NO_THROW(look_at("/dev/null", std::nullopt));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_NO_THROW(refuse_what_others_may_write(ends[0], "/dev/fd/3", std::nullopt));
  close(ends[0]);
  close(ends[1]);
  const std::string fifo = scratch_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(chmod(fifo.c_str(), 0666), 0);
  const sys::UniqueFd opened(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  expect_refusal<ConfigInvalid>(
      [&] { refuse_what_others_may_write(opened.get(), fifo, std::nullopt); }, "mode 0666");
}

}  // namespace
}  // namespace casemate::app
