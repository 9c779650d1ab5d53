// That nothing survives of hosts that share sandboxes, whoever of them is killed, or whose keeper.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/soak/rounds.h"
#include "tests/soak/shared_number.h"
#include "tests/soak/soak.h"

namespace casemate::soak {
namespace {

using linux_tests::shell;

class CompetingSoak : public Soak {
 protected:
  // Two sandboxes are used as it comes, by each of two hosts.
  static void use_any(local::LocalBackend& host, std::mt19937& choice) {
    const SandboxKey which = key(std::to_string(choice() % 2));
    const auto sandbox = host.acquire(which, choice() % 2 == 0 ? spec() : kept_spec(), {});
    try {
      sandbox->exec(shell("true"), {});
    } catch (const SandboxUnavailable&) {
      // The other host disposed it.
    }
    if (choice() % 3 == 0) host.dispose(which);
  }

  using HostLife = std::function<void(local::LocalBackend& host, std::mt19937& choice)>;
  std::vector<pid_t> start_hosts(const HostLife& life) {
    std::vector<pid_t> hosts;
    for (int i = 0; i < 2; ++i) {
      std::mt19937 choice(random_());
      const pid_t pid = fork();
      if (pid == 0) {
        try {
          const auto host = make_host();
          life(*host, choice);
        } catch (const std::exception& error) {
          dprintf(2, "%s\n", error.what());
          _exit(1);
        }
        _exit(0);
      }
      hosts.push_back(pid);
    }
    return hosts;
  }
  void pause(unsigned most_microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % most_microseconds));
  }
  std::string when(int round) const {
    return "round " + std::to_string(round) + " of seed " + std::to_string(seed_);
  }
  static int status_of(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }

  const unsigned seed_ =
      given_seed() != nullptr ? static_cast<unsigned>(std::atoi(given_seed())) : 20260101U;
  std::mt19937 random_{seed_};
};

// LC-02, LC-04
TEST_F(CompetingSoak, HostsThatAreKilledAtRandomLeaveNothing) {
  remember_what_is_there();
  for (int round = 0; round < rounds(300); ++round) {
    const std::vector<pid_t> hosts = start_hosts([](auto& host, auto& choice) {
      while (true) use_any(host, choice);
    });
    for (const pid_t pid : hosts) {
      pause(30000);
      kill(pid, SIGKILL);
      EXPECT_TRUE(WIFSIGNALED(status_of(pid))) << "a host failed by itself";
    }
    expect_nothing_left(when(round));
    if (HasFatalFailure()) return;
  }
}

// Those that live of this process's children, which is what a keeper becomes.
std::vector<pid_t> keepers() {
  std::vector<pid_t> found;
  for (const pid_t child : linux_tests::children_of(getpid())) {
    std::ifstream file("/proc/" + std::to_string(child) + "/stat");
    std::string line;
    if (std::getline(file, line) && line.find(" (casemate-keeper) ") != line.npos &&
        line.find(") Z ") == line.npos) {
      found.push_back(child);
    }
  }
  return found;
}

// However long the machine takes to start one: at most 20 s.
std::vector<pid_t> wait_for_keepers() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<pid_t> found;
  while ((found = keepers()).empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return found;
}

// LC-02, LC-04
TEST_F(CompetingSoak, HostsWhoseKeepersAreKilledAtRandomGoOnAndLeaveNothing) {
  remember_what_is_there();
  const SharedNumber over;
  for (int round = 0; round < rounds(300); ++round) {
    *over = 0;
    const std::vector<pid_t> hosts = start_hosts([&](auto& host, auto& choice) {
      const auto may_be_lost = [](const auto& act) {
        try {
          act();
          return false;
        } catch (const SandboxUnavailable&) {
          return true;
        }
      };
      while (*over == 0) may_be_lost([&] { use_any(host, choice); });
      // Nobody kills a keeper any more, but one may have been in this moment.
      const SandboxKey own = key("own " + std::to_string(getpid()));
      const auto use_own = [&] { print(*host.acquire(own, spec(), {}), "true"); };
      if (may_be_lost(use_own)) use_own();
      for (const SandboxKey& each : {own, key("0"), key("1")}) host.dispose(each);
    });
    for (int kills = 0; kills < 4; ++kills) {
      pause(15000);
      const std::vector<pid_t> there = wait_for_keepers();
      EXPECT_FALSE(there.empty()) << "no keeper came in " << when(round);
      if (there.empty()) break;
      kill(there[random_() % there.size()], SIGKILL);
    }
    *over = 1;
    for (const pid_t pid : hosts) EXPECT_EQ(status_of(pid), 0) << "a host failed";
    expect_nothing_left(when(round));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace casemate::soak
