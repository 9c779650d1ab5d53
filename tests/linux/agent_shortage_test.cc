// An agent that has no descriptor for who connects.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/sys/socket.h"
#include "casemate/sys/unique_fd.h"
#include "tests/linux/linux_test.h"
#include "tests/support/processor_time.h"

namespace casemate::linux_tests {
namespace {

constexpr rlim_t kPolled = 8;

// So many that every number below is one of the process's, but not fewer than it polls at once,
// which poll(2) refuses. Where a number is free there is no shortage, and nothing to be seen.
rlim_t open_from_zero(pid_t pid) {
  std::set<rlim_t> open;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    open.insert(std::stoul(entry.path().filename()));
  }
  rlim_t count = 0;
  while (open.contains(count)) ++count;
  return std::max(count, kPolled);
}

class LinuxAgentShortage : public LinuxTest {};

TEST_F(LinuxAgentShortage, MakesItWaitForOneAndNotSpin) {
  if (geteuid() != 0) GTEST_SKIP() << "counting an agent's descriptors needs root";
  sandbox();
  const std::filesystem::path directory = sandbox_directories().at(0);
  const pid_t agent = agent_of(directory);
  rlimit before{};
  ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{.rlim_cur = open_from_zero(agent), .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &none, nullptr), 0);
  // It waits also when who made it is gone.
  sys::connect_to_address((directory / guest::kAgentSocketName).native()).reset();
  const auto begun = processor_time(agent);
  let_pass(kSpinWatch);
  EXPECT_LT(processor_time(agent) - begun, kNoSpin);
  ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &before, nullptr), 0);
  EXPECT_EQ(output(shell("echo served")), "served\n");
}

}  // namespace
}  // namespace casemate::linux_tests
