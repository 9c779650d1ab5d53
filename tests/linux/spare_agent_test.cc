// The first process of the next sandbox, made before anybody wants it (Starter::prepare_next).

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/linux/linux_test.h"
#include "tests/linux/other_process.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;

// Of a keeper; -1 where none waits.
pid_t spare_of(pid_t keeper) {
  for (const pid_t child : children_of(keeper)) {
    std::ifstream file("/proc/" + std::to_string(child) + "/comm");
    std::string name;
    if (std::getline(file, name) && name == "casemate-spare") return child;
  }
  return -1;
}

class LinuxSpareAgent : public LinuxTest {
 protected:
  pid_t agent_of_id(const std::string& id) const {
    for (const auto& directory : sandbox_directories()) {
      std::ifstream record(directory / "record.json");
      const std::string text{std::istreambuf_iterator<char>(record), {}};
      if (text.find(id) != text.npos) return agent_of(directory);
    }
    return -1;
  }
  pid_t made(const std::string& thread) {
    return agent_of_id(acquire(key(thread), spec())->info().id);
  }

  // What waits after two sandboxes. Its making is told to nobody, so it is looked for again.
  pid_t awaited_spare(pid_t keeper) const {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < until) {
      const pid_t spare = spare_of(keeper);
      if (spare > 0) return spare;
      std::this_thread::sleep_for(1ms);
    }
    return -1;
  }
};

TEST_F(LinuxSpareAgent, BecomesTheNextSandbox) {
  const pid_t first = made("first");
  const pid_t keeper = keeper_of(first);
  EXPECT_EQ(keeper_of(made("second")), keeper);
  for (const char* name : {"third", "fourth"}) {
    const pid_t spare = awaited_spare(keeper);
    ASSERT_GT(spare, 1);
    const auto sandbox = acquire(key(name), spec());
    EXPECT_EQ(agent_of_id(sandbox->info().id), spare);
    const ExecResult result =
        sandbox->exec(shell("echo ~; cat /etc/hostname; echo $$ > ~/mark"), {});
    EXPECT_EQ(result.stdout, "/home/user\nsandbox\n");
    expect_agent_first(*sandbox);
  }
}

TEST_F(LinuxSpareAgent, IsNotMissedWhereItWasKilled) {
  made("first");
  const pid_t keeper = keeper_of(made("second"));
  const pid_t spare = awaited_spare(keeper);
  ASSERT_GT(spare, 1);
  ASSERT_EQ(kill(spare, SIGKILL), 0);
  ASSERT_TRUE(wait_until_gone(spare));
  const auto sandbox = acquire(key("third"), spec());
  EXPECT_EQ(sandbox->exec(shell("echo alive"), {}).stdout, "alive\n");
  const std::vector<pid_t> children = children_of(keeper);
  EXPECT_EQ(std::count(children.begin(), children.end(), spare), 0) << "nobody reaped it";
}

// Whether the keeper waits for the end of that process as that of a sandbox: it has told it what
// it is then.
bool is_awaited(pid_t keeper, pid_t process) {
  const std::filesystem::path files = "/proc/" + std::to_string(keeper) + "/fdinfo";
  const std::string wanted = "Pid:\t" + std::to_string(process);
  for (const auto& entry : std::filesystem::directory_iterator(files)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line == wanted) return true;
    }
  }
  return false;
}

TEST_F(LinuxSpareAgent, IsNotMissedWhereItWasKilledOnceItWasTold) {
  made("first");
  const pid_t keeper = keeper_of(made("second"));
  const pid_t spare = awaited_spare(keeper);
  ASSERT_GT(spare, 1);
  // It hears what it is to be and cannot say that it is ready.
  ASSERT_EQ(kill(spare, SIGSTOP), 0);
  std::thread killer([&] {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!is_awaited(keeper, spare) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(is_awaited(keeper, spare)) << "it was not told";
    kill(spare, SIGKILL);
  });
  std::shared_ptr<Sandbox> sandbox;
  EXPECT_NO_THROW(sandbox = acquire(key("third"), spec()));
  killer.join();
  ASSERT_TRUE(sandbox);
  EXPECT_EQ(sandbox->exec(shell("echo alive"), {}).stdout, "alive\n");
  const std::vector<pid_t> children = children_of(keeper);
  EXPECT_EQ(std::count(children.begin(), children.end(), spare), 0) << "nobody reaped it";
  EXPECT_TRUE(std::filesystem::is_empty(state() / "new"));
}

// It would not notice that nobody is left to ask for it.
TEST_F(LinuxSpareAgent, EndsWithItsHostAlsoWhereASandboxLivesOn) {
  SandboxSpec kept = spec();
  kept.keep_idle = 60s;
  OtherProcess host([&](int channel) {
    const auto own = another_backend();
    own->acquire(key("first"), kept, {});
    own->acquire(key("second"), kept, {});
    OtherProcess::say(channel, "made");
    OtherProcess::hear(channel);
  });
  ASSERT_EQ(host.hear(), "made");
  const pid_t agent = agent_of(sandbox_directories().at(0));
  const pid_t keeper = keeper_of(agent);
  const pid_t spare = awaited_spare(keeper);
  ASSERT_GT(spare, 1);
  host.end();
  EXPECT_TRUE(wait_until_gone(spare));
  EXPECT_EQ(keeper_of(agent), keeper) << "the sandbox went with it";
  for (const char* name : {"first", "second"}) acquire(key(name), kept);
}

TEST_F(LinuxSpareAgent, EndsWithItsKeeper) {
  const pid_t first = made("first");
  const pid_t second = made("second");
  const pid_t keeper = keeper_of(second);
  const pid_t spare = awaited_spare(keeper);
  ASSERT_GT(spare, 1);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  // The agents too, so that what is left is dead when it is swept.
  for (const pid_t process : {spare, first, second}) EXPECT_TRUE(wait_until_gone(process));
}

// A sandbox whose process waited and one whose did not are told apart by nothing.
TEST_F(LinuxSpareAgent, IsAsAnyOther) {
  const auto look = [](Sandbox& sandbox) {
    return sandbox
        .exec(shell("cut -d' ' -f4- /proc/self/mountinfo | sed 's/id=[0-9]*//g; s/:[0-9]* / /g; "
                    "s/[0-9a-f]\\{12\\}//g';"
                    "grep -v -e ctxt -e kB -e Pid: -e PPid: -e NSpid -e Ngid /proc/self/status;"
                    "cat /proc/net/dev | cut -d: -f1; cat /proc/sys/kernel/hostname; id; umask;"
                    "ls -l /proc/self/fd | wc -l; cut -d' ' -f3- /proc/self/limits;"
                    "cat /proc/sys/user/max_inotify_instances"),
              {})
        .stdout;
  };
  acquire(key("first"), spec());
  const auto second = acquire(key("second"), spec());
  const pid_t spare = awaited_spare(keeper_of(agent_of_id(second->info().id)));
  ASSERT_GT(spare, 1);
  const auto third = acquire(key("third"), spec());
  ASSERT_EQ(agent_of_id(third->info().id), spare);
  const std::string seen = look(*third);
  EXPECT_GT(seen.size(), 1000U);
  EXPECT_EQ(seen, look(*second));
}

}  // namespace
}  // namespace casemate::linux_tests
