// What the machine does to a state directory: wiped, full, read-only; and what stays in a sandbox.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "casemate/local/state_directory.h"
#include "casemate/sys/without_call_test.h"
#include "tests/linux/linux_test.h"
#include "tests/linux/other_process.h"
#include "tests/support/directory_events.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class LinuxCrash : public LinuxTest {};

// As `rm -rf` does: what somebody else removes meanwhile is gone, too.
void wipe(const fs::path& directory) {
  std::error_code error;
  do {
    fs::remove_all(directory, error);
  } while (error == std::errc::no_such_file_or_directory);
  if (error) throw fs::filesystem_error("wiping", directory, error);
}

TEST_F(LinuxCrash, AWipedStateDirectoryEndsItsSandboxesAndIsMadeAnew) {
  SandboxSpec patient = spec();
  patient.keep_idle = 1h;
  const auto lost = acquire(key(), patient);
  const std::string id = lost->info().id;
  const pid_t agent = agent_of(sandbox_directories().at(0));
  ASSERT_GT(agent, 0);
  wipe(state());
  EXPECT_TRUE(wait_until_gone(agent));
  expect_refusal<SandboxUnavailable>([&] { lost->exec(shell("true"), {}); });
  const auto again = acquire(key(), patient);
  EXPECT_NE(again->info().id, id);
  EXPECT_EQ(again->exec(shell("echo alive"), {}).stdout, "alive\n");
  // The first one's groups went with its end.
  EXPECT_EQ(control_groups_of(id), std::vector<std::string>{});
}

TEST_F(LinuxCrash, OneSandboxsRemovedDirectoryEndsThatOneOnly) {
  const auto lost = acquire(key("lost"), spec());
  const fs::path directory = sandbox_directories().at(0);
  const auto other = acquire(key("other"), spec());
  const pid_t agent = agent_of(directory);
  wipe(directory);
  EXPECT_TRUE(wait_until_gone(agent));
  EXPECT_EQ(other->exec(shell("echo alive"), {}).stdout, "alive\n");
}

TEST_F(LinuxCrash, WhyASandboxWasNotMadeIsHeardAlsoWhereWhatIsLeftOfItCannotBeEnded) {
  acquire(key("starts the keeper"), spec());
  // Nobody asks the keeper for one, and then nobody asks what is left who its agent is.
  sys::without_call(SYS_socket, EACCES, 0, [&] {
    sys::without_call(SYS_sendmsg, EACCES, 0, [&] {
      expect_refusal<SandboxUnavailable>([&] { backend().acquire(key(), spec(), {}); },
                                         "asking for a sandbox");
    });
  });
  EXPECT_FALSE(fs::is_empty(state() / "new"));
  EXPECT_EQ(another_backend()->list().size(), 1U) << "a sweep ends it";
  EXPECT_TRUE(fs::is_empty(state() / "new"));
}

// A file system of this process's own as the state directory.
void mount_state(const fs::path& where, unsigned long flags, const std::string& options) {
  if (unshare(CLONE_NEWNS) < 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
      mount("tmpfs", where.c_str(), "tmpfs", flags, options.c_str()) < 0) {
    throw std::system_error(errno, std::generic_category(), "mounting a state directory");
  }
}

TEST_F(LinuxCrash, AFullStateDirectoryIsANamedRefusalAtEveryStepAndLeavesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a state directory needs root";
  const fs::path place = state() / "full";
  fs::create_directory(place);
  bool worked = false;
  for (int inodes = 1; !worked && inodes < 40; ++inodes) {
    OtherProcess other([&](int channel) {
      mount_state(place, 0, "mode=700,nr_inodes=" + std::to_string(inodes));
      std::string answer;
      {
        const auto own = make_backend({.state_dir = place, .log = {}});
        try {
          answer = own->acquire(key(), spec(), {})->exec(shell("echo alive"), {}).stdout;
          if (own->dispose(key()) != 1) answer = "not disposed";
        } catch (const SandboxUnavailable& refusal) {
          answer = "refused: " + refusal.message() + "; " + refusal.hint();
        }
        for (const char* name : {"new", "sandboxes", "trash"}) {
          std::error_code none;
          if (fs::exists(place / name, none) && !fs::is_empty(place / name, none)) {
            answer += std::string(" and something is left in ") + name;
          }
        }
      }
      OtherProcess::say(channel, answer);
    });
    const std::string answer = other.hear();
    EXPECT_TRUE(other.ended_well());
    worked = answer == "alive\n";
    if (worked) continue;
    EXPECT_TRUE(answer.starts_with("refused: ")) << inodes << ": " << answer;
    EXPECT_NE(answer.find("No space left on device"), std::string::npos) << answer;
    EXPECT_NE(answer.find("the backend's option state_dir"), std::string::npos) << answer;
    EXPECT_EQ(answer.find("left in"), std::string::npos) << inodes << ": " << answer;
  }
  EXPECT_TRUE(worked) << "with room it works";
}

TEST_F(LinuxCrash, AReadOnlyStateDirectoryIsANamedRefusal) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a state directory needs root";
  const fs::path place = state() / "read-only";
  fs::create_directory(place);
  for (const bool filled : {false, true}) {
    OtherProcess other([&](int channel) {
      mount_state(place, 0, "mode=700");
      if (filled) make_backend({.state_dir = place, .log = {}})->list();
      if (mount(nullptr, place.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) < 0) return;
      const auto own = make_backend({.state_dir = place, .log = {}});
      try {
        own->acquire(key(), spec(), {});
      } catch (const SandboxUnavailable& refusal) {
        OtherProcess::say(channel, refusal.message() + "; " + refusal.hint());
      }
    });
    const std::string answer = other.hear();
    EXPECT_NE(answer.find("Read-only file system"), std::string::npos) << answer;
    EXPECT_NE(answer.find("the backend's option state_dir"), std::string::npos) << answer;
  }
}

TEST_F(LinuxCrash, ADisposeAfterAWipeIsQuiet) {
  const std::string id = acquire(key(), spec())->info().id;
  const pid_t agent = agent_of(sandbox_directories().at(0));
  wipe(state());
  EXPECT_TRUE(wait_until_gone(agent));
  EXPECT_EQ(backend().dispose(key()), 0);
  EXPECT_TRUE(backend().list().empty());
  // Its keeper removes its groups once it has ended; nobody else knows of them any more.
  for (const fs::path group : control_groups_of(id)) {
    EXPECT_TRUE(wait_for_events(group.parent_path(), IN_DELETE, [&] { return !fs::exists(group); }))
        << group;
  }
}

// LC-08
TEST_F(LinuxCrash, AnAcquireThatRacesAnIdleEndGetsALivingSandbox) {
  SandboxSpec patient = spec();
  // Longer than an acquire takes on this machine now, or none could come in time.
  const auto begun = std::chrono::steady_clock::now();
  another_backend()->acquire(key(), patient, {});
  const auto took = std::chrono::steady_clock::now() - begun;
  patient.keep_idle = 5ms + std::chrono::duration_cast<std::chrono::milliseconds>(took);
  int reused = 0;
  for (int round = 0; round < 60; ++round) {
    another_backend()->acquire(key(), patient, {});
    const auto until = std::chrono::steady_clock::now() + round * patient.keep_idle / 25;
    while (std::chrono::steady_clock::now() < until) {
    }
    const auto host = another_backend();
    const auto found = host->acquire(key(), patient, {});
    if (found->info().reused) ++reused;
    ASSERT_EQ(found->exec(shell("echo alive"), {}).stdout, "alive\n") << round;
  }
  EXPECT_GT(reused, 0);
  EXPECT_LT(reused, 60);
}

// -- Programs that stay --------------------------------------------------------------------------

ExecRequest staying(std::string line) {
  ExecRequest request = shell(std::move(line));
  request.lifetime = Lifetime::sandbox;
  return request;
}

SandboxSpec other_spec(SandboxSpec spec) {
  spec.resources.pids = stated(50);
  return spec;
}

TEST_F(LinuxCrash, ASandboxIsBusyAsLongAsAProgramStays) {
  SandboxSpec patient = spec();
  patient.keep_idle = 1h;
  auto host = another_backend();
  {
    const auto call = host->acquire(key(), patient, {})->open_call({}, {});
    call->start(staying("until test -e ../../stop; do sleep 0.01; done; touch ../../stopped"), {});
    EXPECT_TRUE(call->close());
  }
  const std::string id = host->list().at(0).id;
  host.reset();
  expect_refusal<SandboxBusy>([&] { backend().acquire(key(), other_spec(spec()), {}); }, id);
  EXPECT_EQ(backend().list().at(0).idle, 0s);
  const auto found = backend().attach(key(), "test", {});
  EXPECT_EQ(
      found->exec(shell("touch ../../stop; until test -e ../../stopped; do sleep 0.01; done"), {})
          .exit_code,
      0);
  // Its init gives the mark back when it has reported, an instant later.
  std::string replaced = id;
  while (replaced == id) {
    try {
      replaced = acquire(key(), other_spec(spec()))->info().id;
    } catch (const SandboxBusy&) {
    }
  }
  EXPECT_EQ(backend().list().size(), 1U);
}

TEST_F(LinuxCrash, AProgramThatStaysEndsWithItsSandboxAndDoesNotKeepIt) {
  auto host = another_backend();
  std::unique_ptr<Process> process;
  {
    const auto call = host->acquire(key(), spec(), {})->open_call({}, {});
    process = call->start(staying("sleep 1000"), {});
  }
  const pid_t agent = agent_of(sandbox_directories().at(0));
  process.reset();
  host.reset();
  EXPECT_TRUE(wait_until_gone(agent)) << "its last user let go of it, and wished nothing";
  EXPECT_TRUE(wait_until_empty(state() / "sandboxes"));
}

TEST_F(LinuxCrash, AProgramThatStaysIsRefusedBesideHostTools) {
  const auto own = acquire(key(), spec());
  const sys::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CallProfile profile;
  profile.host_tool_socket = socket.get();
  const auto call = own->open_call(profile, {});
  expect_refusal<InvalidArgument>([&] { call->start(staying("sleep 1000"), {}); }, "host tools");
}

}  // namespace
}  // namespace casemate::linux_tests
