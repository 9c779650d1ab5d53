#include "casemate/sys/rlimits.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace casemate::sys {
namespace {

// In a child, because a hard limit that went down may not come up again.
bool holds_in_a_child(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void drop_every_right() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[2]{};
  syscall(SYS_capset, &header, none);
}

bool set(std::uint64_t soft, std::uint64_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool is(std::uint64_t soft, std::uint64_t hard) {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard;
}

TEST(Rlimits, WithoutTheRightTheHardLimitIsTheMost) {
  EXPECT_TRUE(holds_in_a_child([] {
    drop_every_right();
    if (!set(100, 200) || most_of(RLIMIT_NOFILE) != 200) return false;
    set_limit_as_near(RLIMIT_NOFILE, 150, 200);
    if (!is(150, 200)) return false;
    set_limit_as_near(RLIMIT_NOFILE, 300, 300);
    if (!is(200, 200)) return false;
    set_limit_as_near(RLIMIT_NOFILE, 120, RLIM_INFINITY);
    return is(120, 200);
  }));
}

TEST(Rlimits, WhatIsSaidToBeTheMostCanBeHad) {
  EXPECT_TRUE(holds_in_a_child([] {
    if (!set(100, 200)) return false;
    const std::uint64_t most = most_of(RLIMIT_NOFILE);
    set_limit_as_near(RLIMIT_NOFILE, most, most);
    return most >= 200 && is(most, most) && !set(most, most + 1);
  }));
}

}  // namespace
}  // namespace casemate::sys
