#include "casemate/guest/agent/remove_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {
namespace {

class RemoveTree : public testing::Test {
 protected:
  RemoveTree() {
    // tmpfs, as in a sandbox: on a disk the deep and the wide tree take half a minute.
    std::string pattern = "/dev/shm/casemate-XXXXXX";
    root_ = mkdtemp(pattern.data());
    fd_.reset(open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~RemoveTree() override {
    remove_tree(fd_.get(), "tree");
    std::filesystem::remove_all(root_);
  }
  void file(const std::string& path) { std::ofstream(root_ / path) << "x"; }
  bool exists(const std::string& path) {
    return std::filesystem::symlink_status(root_ / path).type() !=
           std::filesystem::file_type::not_found;
  }

  std::filesystem::path root_;
  sys::UniqueFd fd_;
};

TEST_F(RemoveTree, RemovesATreeAndNothingBesideIt) {
  std::filesystem::create_directories(root_ / "tree/a/b/c");
  std::filesystem::create_directories(root_ / "tree/d");
  file("tree/a/b/one");
  file("tree/d/two");
  file("beside");
  EXPECT_EQ(remove_tree(fd_.get(), "tree"), 0);
  EXPECT_FALSE(exists("tree"));
  EXPECT_TRUE(exists("beside"));
}

TEST_F(RemoveTree, AMissingNameIsSuccess) { EXPECT_EQ(remove_tree(fd_.get(), "tree"), 0); }

TEST_F(RemoveTree, LinksAreRemovedNeverFollowed) {
  std::filesystem::create_directories(root_ / "outside");
  file("outside/kept");
  std::filesystem::create_directories(root_ / "tree/in");
  std::filesystem::create_directory_symlink(root_ / "outside", root_ / "tree/in/link");
  std::filesystem::create_directory_symlink(root_ / "outside", root_ / "top");
  EXPECT_EQ(remove_tree(fd_.get(), "tree"), 0);
  EXPECT_EQ(remove_tree(fd_.get(), "top"), 0);
  EXPECT_TRUE(exists("outside/kept"));
  EXPECT_FALSE(exists("top"));
}

TEST_F(RemoveTree, OddEntriesGoToo) {
  std::filesystem::create_directories(root_ / "tree");
  ASSERT_EQ(mkfifo((root_ / "tree/fifo").c_str(), 0600), 0);
  file("tree/\xff\n*");
  std::filesystem::create_symlink("nowhere", root_ / "tree/dangling");
  EXPECT_EQ(remove_tree(fd_.get(), "tree"), 0);
  EXPECT_FALSE(exists("tree"));
}

// PATH_MAX is 4096: names of 200 bytes pass it after 20 levels.
TEST_F(RemoveTree, DepthBeyondAnyPathIsNoObstacle) {
  constexpr int kDepth = 4'000;
  const std::string name(200, 'd');
  ASSERT_EQ(mkdirat(fd_.get(), "tree", 0700), 0);
  sys::UniqueFd at(openat(fd_.get(), "tree", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int level = 0; level < kDepth; ++level) {
    ASSERT_EQ(mkdirat(at.get(), name.c_str(), 0700), 0);
    at.reset(openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at);
  }
  at.reset();
  EXPECT_EQ(remove_tree(fd_.get(), "tree"), 0);
  EXPECT_FALSE(exists("tree"));
}

TEST_F(RemoveTree, WidthIsNoObstacle) {
  for (int i = 0; i < 3000; ++i) {
    std::filesystem::create_directories(root_ / "tree" / std::to_string(i));
    file("tree/" + std::to_string(i) + "/x");
  }
  EXPECT_EQ(remove_tree(fd_.get(), "tree"), 0);
  EXPECT_FALSE(exists("tree"));
}

// Whoever goes on creating entries while it works cannot hold it for ever.
TEST_F(RemoveTree, MeetsNoMoreEntriesThanMayBeAndGoesOnTheNextTime) {
  std::filesystem::create_directories(root_ / "tree");
  for (int i = 0; i < 50; ++i) file("tree/" + std::to_string(i));
  EXPECT_EQ(remove_tree(fd_.get(), "tree", 49), EAGAIN);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_ / "tree"), {}), 1);
  EXPECT_EQ(remove_tree(fd_.get(), "tree", 1), 0);
  EXPECT_FALSE(exists("tree"));

  std::filesystem::create_directories(root_ / "tree/a/b/c");
  EXPECT_EQ(remove_tree(fd_.get(), "tree", 2), EAGAIN);
  EXPECT_TRUE(exists("tree/a/b/c"));
  EXPECT_EQ(remove_tree(fd_.get(), "tree", 3), 0);
  EXPECT_FALSE(exists("tree"));
}

// A directory that is moved out while it is being emptied must not take the remover along: the way
// up from it then leads outside.
TEST_F(RemoveTree, WhatIsMovedOutWhileItWorksLeadsNowhere) {
  // Ends before it is waited for, however the test does.
  std::jthread mover([&](const std::stop_token& over) {
    std::error_code ignored;
    while (!over.stop_requested()) {
      std::filesystem::rename(root_ / "tree/a/b", root_ / "outside/b", ignored);
      std::filesystem::rename(root_ / "outside/b", root_ / "tree/a/b", ignored);
    }
  });
  for (int round = 0; round < 100; ++round) {
    std::filesystem::create_directories(root_ / "outside");
    file("outside/precious");
    std::error_code ignored;
    std::filesystem::create_directories(root_ / "tree/a/b/c/d", ignored);
    for (int i = 0; i < 50; ++i) file("tree/a/b/c/d/" + std::to_string(i));
    const int error = remove_tree(fd_.get(), "tree");
    EXPECT_TRUE(error == 0 || error == EAGAIN) << error;
    EXPECT_TRUE(exists("outside/precious")) << round;
  }
}

}  // namespace
}  // namespace casemate::guest
