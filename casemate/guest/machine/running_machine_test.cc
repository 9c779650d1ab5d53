// What becomes of a saved machine by what happens when it is restored. A program stands in for the
// hypervisor, which does as the file says that it is given.

#include "casemate/guest/machine/running_machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "casemate/guest/machine/machine_messages.h"
#include "casemate/sys/mount.h"
#include "tests/support/scratch.h"

namespace casemate::guest {
namespace {

namespace fs = std::filesystem;

constexpr char kHypervisor[] = R"py(
import os, resource, socket, struct, sys
magic, start_size, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
line = socket.socket(fileno=4)
def say(text): line.sendall(text.encode() + b"\n")
def be_killed():  # by the kernel: process 1 of a namespace cannot do it itself
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    while True: pass
def serve():
    left = start_size
    while left: left -= len(os.read(3, left))
    if state == b"killed when it is begun": be_killed()
    if state == b"ends when it is begun": sys.exit(0)
    os.write(3, struct.pack("<Qi508s", magic, 0, b""))
say('{"QMP": {}}')
if mode == "fresh": os.write(3, struct.pack("<Qi244s", magic, 0, b""))
saved, state, rest = -1, b"", b""
while True:
    data, descriptors, _, _ = socket.recv_fds(line, 65536, 1)
    if not data: sys.exit(0)
    if descriptors: saved = descriptors[0]
    for command in data.splitlines():
        if b'"migrate"' in command: os.write(saved, b"good")
        if b"migrate-incoming" in command:
            state = os.read(saved, 100)
            if state == b"refused": sys.exit(1)
            if state == b"killed": be_killed()
        if b"query-migrate" in command: say('{"return": {"status": "completed"}}')
        elif b"query-status" in command: say('{"return": {"status": "paused"}}')
        else: say('{"return": {}}')
        if b'"cont"' in command and mode == "restored": serve()
        if b"qmp_capabilities" in command and mode == "fresh" and sys.argv[4:] == ["alone"]: serve()
)py";

class Restoring : public testing::Test {
 protected:
  Restoring() {
    plan_.program = "/usr/bin/python3";
    plan_.arguments = {"-c", kHypervisor, std::to_string(kMachineMagic),
                       std::to_string(sizeof(MachineStart))};
    plan_.fresh_arguments = {"fresh"};
    plan_.restored_arguments = {"restored"};
    plan_.saved = saved().string();
  }
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "the process that keeps a machine is root, somewhere";
  }
  fs::path saved() const { return scratch_ / "saved"; }
  std::string saved_state() const { return fs::exists(saved()) ? get(saved()) : "(gone)"; }

  // Whether the machine came up, in a process of its own.
  bool comes_up(const std::function<void()>& first = [] {}) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        if (unshare(CLONE_NEWNS) < 0) _exit(3);
        sys::make_all_slave();
        const SandboxIds ids{.first_user = 0x70000000U, .first_group = 0x70000000U};
        RunningMachine machine(plan_, ids);
        first();
        machine.get_ready();
        MachineStart start{};
        machine.begin(start);
        _exit(0);
      } catch (const std::exception&) {
        _exit(1);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << status;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  Scratch scratch_;
  MachinePlan plan_;
};

TEST_F(Restoring, AMachineIsSavedAndRestoredFromThat) {
  EXPECT_TRUE(comes_up());
  EXPECT_EQ(saved_state(), "good");
  EXPECT_EQ(tree(scratch_.path()).size(), 1U) << "something else was left";
  EXPECT_TRUE(comes_up());
}

TEST_F(Restoring, OneThatTheHypervisorRefusesIsMadeAnew) {
  put(saved(), "refused");
  EXPECT_TRUE(comes_up());
  EXPECT_EQ(saved_state(), "good");
}

TEST_F(Restoring, OneThatDoesNotRunIsRemoved) {
  plan_.fresh_arguments.push_back("alone");
  put(saved(), "ends when it is begun");
  EXPECT_TRUE(comes_up());
  EXPECT_EQ(saved_state(), "(gone)");
}

TEST_F(Restoring, OneWhoseHypervisorWasKilledStays) {
  plan_.fresh_arguments.push_back("alone");
  put(saved(), "killed");
  EXPECT_TRUE(comes_up());
  EXPECT_EQ(saved_state(), "killed");
  put(saved(), "killed when it is begun");
  EXPECT_TRUE(comes_up());
  EXPECT_EQ(saved_state(), "killed when it is begun");
}

TEST_F(Restoring, OneStaysWhereThisMachineHasTooLittleOfSomething) {
  put(saved(), "good");
  bool failed = false;
  bool came_up = false;
  for (rlim_t files = 8; files <= 64 && !came_up; ++files) {
    came_up = comes_up([files] {
      const rlimit few{.rlim_cur = files, .rlim_max = files};
      setrlimit(RLIMIT_NOFILE, &few);
    });
    failed |= !came_up;
    ASSERT_EQ(saved_state(), "good") << "with " << files << " descriptors";
  }
  EXPECT_TRUE(failed && came_up);
}

}  // namespace
}  // namespace casemate::guest
