#include "casemate/guest/agent/enclosed_mounts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "casemate/sys/file.h"

namespace casemate::guest {
namespace {

// As an engine leaves it: devices of the kernel's own, and a mount among them.
bool furnish_dev() {
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev", "tmpfs", 0, "mode=755") == 0 && mkdir("/dev/net", 0755) == 0 &&
         mkdir("/dev/shm", 0755) == 0 && mkdir("/dev/mqueue", 0755) == 0 &&
         close(open("/dev/net/tun", O_CREAT | O_WRONLY, 0666)) == 0 &&
         close(open("/dev/fuse", O_CREAT | O_WRONLY, 0666)) == 0 &&
         close(open("/dev/null", O_CREAT | O_WRONLY, 0666)) == 0 &&
         mount("tmpfs", "/dev/mqueue", "tmpfs", 0, "") == 0;
}

// 0: as wanted; else which step was not.
int seen_in_a_namespace_of_its_own() try {
  if (unshare(CLONE_NEWNS) < 0) return 2;
  if (!furnish_dev()) return 3;
  remove_devices();
  std::vector<std::string> left = sys::list_directory_at(AT_FDCWD, "/dev");
  std::ranges::sort(left);
  return left == std::vector<std::string>{"null", "shm"} ? 0 : 4;
} catch (const std::exception&) {
  return 5;
}

TEST(EnclosedMounts, OfDevicesOnlyTheHarmlessAreLeftWhateverIsMountedAmongThem) {
  if (geteuid() != 0) GTEST_SKIP() << "mounts are root's to make";
  const pid_t child = fork();
  if (child == 0) _exit(seen_in_a_namespace_of_its_own());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(WIFEXITED(status));
}

}  // namespace
}  // namespace casemate::guest
