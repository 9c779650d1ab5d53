// What sandboxes are to the process that uses them: forks, callbacks, descriptors, and that nothing
// of it is changed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <sstream>
#include <string>

#include "tests/linux/lifecycle.h"
#include "tests/linux/other_process.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST_F(LinuxLifecycle, RunningOutOfDescriptorsSaysThatDisposingGivesThemBack) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's check of a type needs a descriptor of its own";
#endif
  OtherProcess other([&](int channel) {
    const auto own = another_backend();
    const rlimit limit{.rlim_cur = 40, .rlim_max = 40};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    std::string hint = "none";
    int made = 0;
    try {
      for (; made < 40; ++made) own->acquire(key(std::to_string(made)), spec(), {});
    } catch (const SandboxUnavailable& refusal) {
      hint = refusal.message() + " " + refusal.hint();
    }
    for (int i = 0; i < made; ++i) own->dispose(key(std::to_string(i)));
    own->acquire(key("0"), spec(), {});
    OtherProcess::say(channel, hint);
  });
  const std::string heard = other.hear();
  EXPECT_NE(heard.find("dispose conversations"), std::string::npos) << heard;
}

TEST_F(LinuxLifecycle, AForkOfTheHostDisposesNothing) {
  auto own = acquire(key(), spec());
  const auto call = own->open_call({}, {});
  const pid_t child = fork();
  if (child == 0) {
    own.reset();
    exit(0);  // runs what destructors a forked child runs
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(call->exec(shell("echo alive"), {}).stdout, "alive\n");
  EXPECT_EQ(own->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, AForkOfTheHostCanAcquireItself) {
  const auto own = acquire(key(), spec());
  OtherProcess other([&](int channel) {
    const auto theirs = backend().acquire(key("other"), spec(), {});
    OtherProcess::say(channel, theirs->exec(shell("echo from the child"), {}).stdout);
  });
  EXPECT_EQ(other.hear(), "from the child\n");
  EXPECT_TRUE(other.ended_well());
  EXPECT_EQ(acquire(key("third"), spec())->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxLifecycle, TheHostIsNeverTheParentOfAnything) {
  const auto own = acquire(key(), spec());
  EXPECT_EQ(own->exec(shell("true"), {}).exit_code, 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(LinuxLifecycle, AnOutputCallbackMayCallBackIntoAllOfIt) {
  const auto call = acquire(key(), spec())->open_call({}, {});
  std::unique_ptr<Process> process;
  std::string seen;
  ExecRequest request = shell("echo up; sleep 1000");
  request.timeout = 60s;
  request.on_output = [&](OutputStream, std::span<const char> bytes) {
    call->write_file("seen", bytes, call->directory() + "/work", {});
    seen = call->exec(shell("cat seen"), {}).stdout;
    EXPECT_EQ(backend().list().size(), 1U);
    EXPECT_TRUE(backend().acquire(key(), spec(), {})->info().reused);
    process->signal(SIGTERM);
  };
  process = call->start(request, {});
  EXPECT_EQ(process->wait({}).signal, "SIGTERM");
  EXPECT_EQ(seen, "up\n");
}

// What a library could change of the process that it runs in.
std::string state_of_this_process() {
  std::ostringstream state;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) < 0) continue;
    state << number << ':' << reinterpret_cast<std::uintptr_t>(action.sa_handler) << ','
          << action.sa_flags << ' ';
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number <= SIGRTMAX; ++number) state << sigismember(&mask, number);
  const mode_t creation = umask(0);
  umask(creation);
  state << " umask " << creation << " in " << fs::current_path() << '\n';
  for (char** entry = environ; *entry != nullptr; ++entry) state << *entry << '\n';
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
    state << limit.rlim_cur << '/' << limit.rlim_max << ' ';
  }
  state << prctl(PR_GET_DUMPABLE) << prctl(PR_GET_NO_NEW_PRIVS) << prctl(PR_GET_CHILD_SUBREAPER);
  return state.str();
}

TEST_F(LinuxLifecycle, NothingOfTheHostProcessIsChanged) {
  const std::string before = state_of_this_process();
  {
    const auto own = acquire(key(), spec());
    EXPECT_EQ(own->exec(shell("echo alive"), {}).stdout, "alive\n");
    EXPECT_EQ(state_of_this_process(), before);
    backend().dispose(key());
  }
  EXPECT_EQ(state_of_this_process(), before);
}

}  // namespace
}  // namespace casemate::linux_tests
