#include "bench/own_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

namespace casemate::bench {
namespace {

namespace fs = std::filesystem;

TEST(OwnDirectory, IsRemovedAtItsEndAndBySweepsOnlyWhenItsProcessIsGone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const OwnDirectory left;
    const std::string name = left.path().string();
    if (write(ends[1], name.data(), name.size()) < 0) _exit(1);
    raise(SIGKILL);
  }
  close(ends[1]);
  char name[256] = {};
  ASSERT_GT(read(ends[0], name, sizeof name - 1), 0);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(name));

  std::set<std::string> told;
  fs::path ours;
  {
    const OwnDirectory alive;
    ours = alive.path();
    sweep_own_directories([&](const fs::path& path) { told.insert(path.string()); });
    EXPECT_TRUE(fs::exists(ours));
  }
  EXPECT_FALSE(fs::exists(ours));
  EXPECT_FALSE(fs::exists(name));
  EXPECT_TRUE(told.contains(name));
  EXPECT_FALSE(told.contains(ours.string()));
}

}  // namespace
}  // namespace casemate::bench
