// Snapshots of the backends that make sandboxes on this machine: what is kept, what is not, whose
// it is, and what a hostile one can do.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/spec.h"
#include "casemate/guest/agent/keeper_messages.h"
#include "casemate/local/state_directory.h"
#include "casemate/sys/unique_fd.h"
#include "tests/linux/linux_test.h"
#include "tests/linux/other_process.h"
#include "tests/linux/warm_pool.h"
#include "tests/support/directory_events.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using testing::HasSubstr;
using testing::Not;

// The code of what `act` threw.
std::future<std::string> in_another_thread(std::function<void()> act) {
  return std::async(std::launch::async, [act = std::move(act)]() -> std::string {
    try {
      act();
      return "";
    } catch (const SandboxError& error) {
      return std::string(error.code());
    }
  });
}

// By this process.
std::size_t times_opened(const std::filesystem::path& file) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == file) ++count;
  }
  return count;
}

// By this test, and by somebody else.
bool wait_until_opened_twice(const std::filesystem::path& file) {
  return wait_for_events(file.parent_path(), IN_OPEN, [&] { return times_opened(file) == 2; });
}

class LinuxSnapshots : public LinuxTest {
 protected:
  std::shared_ptr<Sandbox> restore(const std::string& thread, const std::string& id) {
    return backend().restore(key(thread), spec(), id, {});
  }
  std::string print(Sandbox& sandbox, const std::string& line) {
    const ExecResult result = sandbox.exec(shell(line), {});
    EXPECT_EQ(result.exit_code, 0) << result.stderr;
    return result.stdout;
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(state() / "snapshots")) {
      static_cast<void>(entry);
      ++count;
    }
    return count;
  }
};

TEST_F(LinuxSnapshots, BringBackWhatProgramsLeft) {
  output(
      shell("cd /workspace; echo kept > before; mkdir -p ~/deep/er; echo home > ~/deep/er/file"));
  const SandboxSnapshot taken = backend().snapshot(key(), spec().kind, {});
  EXPECT_EQ(taken.key, key());
  EXPECT_EQ(taken.kind, spec().kind);
  EXPECT_EQ(taken.backend, backend().declarations().name);
  EXPECT_GT(taken.bytes, 0U);
  output(shell("cd /workspace; echo changed > before; echo new > after; rm -r ~/deep"));

  const std::string old_id = sandbox().info().id;
  const auto restored = restore("thread", taken.id);
  EXPECT_EQ(
      print(*restored, "cd /workspace; cat before ~/deep/er/file; ls -d before after || true"),
      "kept\nhome\nbefore\n");
  EXPECT_NE(restored->info().id, old_id);
  EXPECT_FALSE(restored->info().reused);
  expect_refusal<SandboxUnavailable>([&] { sandbox().exec(shell("true"), {}); }, "acquire");
  EXPECT_EQ(acquire(key(), spec())->info().id, restored->info().id);
}

TEST_F(LinuxSnapshots, KeepModesTimesLinksHolesAndNamesOfAnyBytes) {
  output(python(R"py(
import os
os.chdir("/workspace")
os.makedirs(b"dir \xff\n/inner")
open(b"dir \xff\n/inner/\x01\x1b[31m", "w").write("odd")
open("script", "w").write("#!/bin/sh\necho ran\n"); os.chmod("script", 0o755)
os.utime("script", ns=(1, 1234567890_123456789))
os.link("script", b"dir \xff\n/same")
os.symlink("/etc/passwd", "link"); os.symlink("nowhere", "dangling")
with open("sparse", "wb") as f: f.seek(1 << 40); f.write(b"end")
os.mkfifo("fifo", 0o640); os.chmod("fifo", 0o640)
os.mkdir("closed"); open("closed/in", "w").write("inside"); os.link("closed/in", "also")
os.chmod("closed/in", 0); os.chmod("closed", 0)
os.utime(b"dir \xff\n", ns=(5, 5_000000007))
)py"));
  constexpr char kLook[] = R"py(
import os, stat
os.chdir("/workspace")
def show(path):
    s = os.lstat(path)
    print(path, stat.filemode(s.st_mode), s.st_nlink, s.st_size, s.st_uid,
          s.st_mtime_ns if not stat.S_ISDIR(s.st_mode) or path.startswith(b"dir") else "",
          os.readlink(path) if stat.S_ISLNK(s.st_mode) else "")
for path in (b"dir \xff\n", b"dir \xff\n/inner/\x01\x1b[31m", b"script", b"dir \xff\n/same", b"link",
             b"dangling", b"sparse", b"fifo", b"closed", b"also"): show(path)
print(os.lstat("script").st_ino == os.lstat(b"dir \xff\n/same").st_ino)
print(os.lstat("sparse").st_blocks < 100, open("sparse", "rb").read(1))
os.chmod("closed", 0o700); show(b"closed/in"); os.chmod("closed", 0)
print(os.popen("./script").read())
)py";
  const std::string before = output(python(kLook));
  EXPECT_THAT(before, HasSubstr("-rwxr-xr-x 2"));
  const SandboxSnapshot taken = backend().snapshot(key(), spec().kind, {});
  EXPECT_LT(taken.bytes, 100'000U) << "a hole was sent as bytes";
  EXPECT_EQ(output(python(kLook)), before) << "taking it changed something";
  EXPECT_EQ(restore("twin", taken.id)->exec(python(kLook), {}).stdout, before);
}

TEST_F(LinuxSnapshots, TwinsAreApartAndAlikeInNothingThatIsTheirOwn) {
  output(shell("echo base > /workspace/shared"));
  const auto one = backend().fork(key(), key("one"), spec(), {});
  const auto two = backend().fork(key(), key("two"), spec(), {});
  EXPECT_EQ(files(), 0U) << "a fork leaves a snapshot";
  print(*one, "echo one > /workspace/shared; echo x > ~/of-one");
  EXPECT_EQ(print(*two, "cat /workspace/shared; ls ~"), "base\n");
  EXPECT_EQ(output(shell("cat /workspace/shared; ls ~")), "base\n");
  for (const char* own : {"cat /etc/machine-id", "od -An -tx8 -N16 /dev/urandom",
                          "python3 -c 'print(hash(\"a\"), __import__(\"uuid\").uuid4())'"}) {
    const std::string of_one = print(*one, own);
    EXPECT_NE(of_one, print(*two, own)) << own;
    EXPECT_NE(of_one, output(shell(own))) << own;
  }
  EXPECT_NE(one->info().id, two->info().id);
}

TEST_F(LinuxSnapshots, LeaveOutWhatIsACallsOwn) {
  output(shell("echo x > here; echo x > /tmp/there; echo x > /dev/shm/there; echo x > ../beside"));
  const auto twin = backend().fork(key(), key("twin"), spec(), {});
  EXPECT_EQ(print(*twin,
                  "ls /tmp /dev/shm; ls -A /workspace | grep -v $(basename $(dirname $PWD)) "
                  "|| true"),
            "/dev/shm:\n\n/tmp:\n");
}

TEST_F(LinuxSnapshots, AreRefusedWhileACallIsOpenOrAProgramStays) {
  auto call = sandbox().open_call({}, {});
  const auto refused = [&] {
    expect_refusal<SandboxBusy>([&] { backend().snapshot(key(), spec().kind, {}); },
                                {sandbox().info().id, "close its calls"});
    EXPECT_EQ(files(), 0U);
  };
  refused();
  ExecRequest stays = shell("exec sleep 1000");
  stays.lifetime = Lifetime::sandbox;
  const auto process = call->start(stays, {});
  call->close();
  refused();
}

TEST_F(LinuxSnapshots, AreTakenOnceTheLastCallIsClosedThoughItsHandleIsThere) {
  const auto call = sandbox().open_call({}, {});
  call->close();
  EXPECT_NE(backend().snapshot(key(), spec().kind, {}).id, "");
}

TEST_F(LinuxSnapshots, RefuseACallWhileTheyAreTakenAsOfABusySandboxThatLives) {
  output(shell("echo x > /workspace/file"));
  const sys::UniqueFd directory(
      open(sandbox_directories().at(0).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // As it is held then.
  auto taken = local::FileLock::attempt(directory.get(), guest::kBusyLockName,
                                        local::FileLock::Kind::exclusive);
  ASSERT_TRUE(taken);
  expect_refusal<SandboxBusy>([&] { sandbox().open_call({}, {}); }, {"snapshot", "try again"});
  taken.reset();
  EXPECT_EQ(output(shell("cat /workspace/file")), "x\n");
}

TEST_F(LinuxSnapshots, AreWaitedForNoLongerThanACallersDeadlineAndStop) {
  output(shell("true"));
  const auto directory = sandbox_directories().at(0);
  const sys::UniqueFd opened(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto taken = local::FileLock::attempt(opened.get(), guest::kBusyLockName,
                                              local::FileLock::Kind::exclusive);
  ASSERT_TRUE(taken);
  CallControl late;
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_THROW(sandbox().open_call({}, late), SandboxTimeout);
  std::stop_source stop;
  CallControl stopped;
  stopped.stop = stop.get_token();
  auto opening = in_another_thread([&] { sandbox().open_call({}, stopped); });
  ASSERT_TRUE(wait_until_opened_twice(directory / guest::kBusyLockName));
  stop.request_stop();
  EXPECT_EQ(opening.get(), "SandboxCancelled");
}

TEST_F(LinuxSnapshots, OfOneTooManyAreRefused) {
  acquire(key(), spec());
  const auto two = make_backend({.state_dir = state(), .log = {}, .max_snapshots = 2});
  const std::string first = two->snapshot(key(), spec().kind, {}).id;
  // Another's count too.
  acquire(key("other"), spec());
  backend().snapshot(key("other"), spec().kind, {});
  expect_refusal<SandboxUnavailable>([&] { two->snapshot(key(), spec().kind, {}); },
                                     {"2 snapshots", "dispose", "max_snapshots"});
  EXPECT_EQ(files(), 2U);
  EXPECT_TRUE(two->dispose_snapshot(first));
  EXPECT_NE(two->snapshot(key(), spec().kind, {}).id, first);
}

TEST_F(LinuxSnapshots, AreRefusedWhereThereIsNothingToTake) {
  expect_refusal<NoSuchSandbox>([&] { backend().snapshot(key(), spec().kind, {}); }, spec().kind);
  EXPECT_TRUE(sandbox_directories().empty()) << "one was made";
  expect_refusal<InvalidArgument>([&] { backend().snapshot({"s", "t", ""}, spec().kind, {}); });
}

TEST_F(LinuxSnapshots, AreRestoredOnlyWhereTheyBelong) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  for (const std::string& unknown :
       {std::string("00"), std::string(32, '0'), std::string("../locks/new.lock"), id + "0"}) {
    expect_refusal<NoSuchSnapshot>([&] { restore("twin", unknown); }, unknown);
  }
  expect_refusal<NoSuchSnapshot>(
      [&] { backend().restore({"another scope", "thread", "agent"}, spec(), id, {}); }, id);
  SandboxSpec other = spec();
  other.kind = "other";
  expect_refusal<SandboxSnapshotMismatch>([&] { backend().restore(key("twin"), other, id, {}); },
                                          {id, "other"});
  other = spec();
  other.resources.disk_bytes = stated(2 * kMiB);
  expect_refusal<SandboxSnapshotMismatch>([&] { backend().restore(key("twin"), other, id, {}); },
                                          "the spec that the sandbox was acquired with");
  EXPECT_EQ(sandbox_directories().size(), 1U);
}

TEST_F(LinuxSnapshots, ABusySandboxIsNotReplaced) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  const auto twin = acquire(key("twin"), spec());
  const auto call = twin->open_call({}, {});
  expect_refusal<SandboxBusy>([&] { restore("twin", id); }, {twin->info().id, "another key"});
  EXPECT_EQ(call->exec(shell("true"), {}).exit_code, 0);
}

TEST_F(LinuxSnapshots, GoWithTheirConversationAlsoFromElsewhere) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  const auto elsewhere = another_backend();
  EXPECT_NE(elsewhere->restore(key("twin"), spec(), id, {}), nullptr) << "it is the provider's";
  elsewhere->dispose_scope("scope", "another thread");
  EXPECT_EQ(files(), 1U);
  elsewhere->dispose_scope("scope", "thread");
  EXPECT_EQ(files(), 0U);
  expect_refusal<NoSuchSnapshot>([&] { restore("twin", id); }, id);
}

TEST_F(LinuxSnapshots, OutliveTheirSandboxAndGoWithItsKeyOrById) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  EXPECT_TRUE(backend().dispose_id(sandbox().info().id));
  EXPECT_EQ(print(*restore("thread", id), "cat /workspace/file"), "x\n");
  backend().dispose(key());
  EXPECT_EQ(files(), 0U);
  acquire(key(), spec());
  const std::string other = backend().snapshot(key(), spec().kind, {}).id;
  EXPECT_TRUE(backend().dispose_snapshot(other));
  EXPECT_FALSE(backend().dispose_snapshot(other));
  EXPECT_FALSE(backend().dispose_snapshot("../locks/new.lock"));
}

TEST_F(LinuxSnapshots, GoWithTheBackendThatTookThem) {
  acquire(key(), spec());
  {
    const auto elsewhere = another_backend();
    elsewhere->snapshot(key(), spec().kind, {});
    backend().list();
    EXPECT_EQ(files(), 1U) << "it is held";
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(LinuxSnapshots, ThatAreLeftGoThoughASandboxCannotBeEnded) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  const std::string left(32, 'a');
  std::filesystem::copy_file(state() / "snapshots" / id, state() / "snapshots" / left);
  const auto stuck = state() / "trash" / "stuck";
  std::filesystem::create_directory(stuck);
  std::filesystem::create_symlink(guest::kLeaseSocketName, stuck / guest::kLeaseSocketName);
  expect_refusal<NoSuchSnapshot>([&] { restore("twin", left); }, left);
  EXPECT_EQ(files(), 1U);
  EXPECT_NE(restore("twin", id), nullptr);
  EXPECT_TRUE(std::filesystem::exists(stuck)) << "this proves nothing";
  std::filesystem::remove_all(stuck);
}

TEST_F(LinuxSnapshots, CountAgainstTheDiskBoundOfWhatBeginsWithThem) {
  SandboxSpec small = spec();
  small.resources.disk_bytes = stated(8 * kMiB);
  const auto source = acquire(key("small"), small);
  print(*source, "head -c 5000000 /dev/urandom > /workspace/large");
  const auto twin = backend().fork(key("small"), key("twin"), small, {});
  EXPECT_EQ(print(*twin, "stat -c %s /workspace/large"), "5000000\n");
  const ExecResult more = twin->exec(shell("head -c 5000000 /dev/zero > /workspace/more"), {});
  EXPECT_NE(more.exit_code, 0);
  EXPECT_EQ(more.limit, Limit::disk);
}

TEST_F(LinuxSnapshots, OfAFullDiskAreRestoredWhole) {
  SandboxSpec small = spec();
  small.resources.disk_bytes = stated(4 * kMiB);
  small.resources.disk_inodes = stated(600);
  const auto source = acquire(key("small"), small);
  source->exec(shell("cd /workspace; mkdir d; i=0; while echo $i > d/$i; do i=$((i+1)); done; "
                     "head -c 9000000 /dev/urandom > d/0; rm d/[1-3]? && truncate -s -65536 d/0"),
               {});
  const std::string sum =
      "cd /workspace; find d -type f | sort | xargs sha256sum | "
      "sha256sum; ls d | wc -l";
  const std::string before = print(*source, sum);
  const auto twin = backend().fork(key("small"), key("twin"), small, {});
  EXPECT_EQ(print(*twin, sum), before);
}

TEST_F(LinuxSnapshots, OfWhatCannotBeKeptAreRefusedNamingIt) {
  output(python(R"py(
import os
os.chdir("/workspace")
for _ in range(20):
    os.mkdir("d" * 250); os.chdir("d" * 250)
)py"));
  expect_refusal<SandboxFileError>([&] { backend().snapshot(key(), spec().kind, {}); },
                                   {"ddd", "too long", "remove"});
  EXPECT_EQ(files(), 0U);
  output(shell("rm -r /workspace/dd*"));
  EXPECT_NE(backend().snapshot(key(), spec().kind, {}).id, "");
}

TEST_F(LinuxSnapshots, OfAProcessThatIsKilledAreLeftToNobody) {
  acquire(key(), spec());
  OtherProcess other([&](int channel) {
    const auto own = another_backend();
    own->acquire(key(), spec(), {});
    OtherProcess::say(channel, own->snapshot(key(), spec().kind, {}).id);
    OtherProcess::hear(channel);
  });
  const std::string id = other.hear();
  EXPECT_EQ(files(), 1U) << id;
  EXPECT_NE(restore("twin", id), nullptr);
  other.end();
  expect_refusal<NoSuchSnapshot>([&] { restore("late", id); }, id);
  EXPECT_EQ(files(), 0U);
}

TEST_F(LinuxSnapshots, AreRestoredManyAtATimeAndDisposedMeanwhile) {
  output(
      shell("head -c 1000000 /dev/urandom > /workspace/file; sha256sum /workspace/file > ~/sum"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  std::atomic<int> restored = 0;
  std::atomic<int> refused = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int round = 0; round < 4; ++round) {
          try {
            const auto twin = restore(std::to_string(thread), id);
            EXPECT_EQ(twin->exec(shell("sha256sum --status -c ~/sum"), {}).exit_code, 0);
            ++restored;
          } catch (const NoSuchSnapshot&) {
            ++refused;
          } catch (const SandboxUnavailable& refusal) {
            // It was emptied between its first bytes and its last.
            EXPECT_THAT(refusal.message(), HasSubstr("not whole"));
            ++refused;
          }
          if (restored >= 5) backend().dispose_snapshot(id);
        }
      });
    }
  }
  EXPECT_GE(restored, 5);
  EXPECT_EQ(restored + refused, 16);
  EXPECT_GT(refused, 0);
}

// What stands in a snapshot is a guest's word, and a guest may have been taken over.
TEST_F(LinuxSnapshots, ThatAreNotWholeMakeNothing) {
  output(shell("head -c 200000 /dev/urandom > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  const auto file = state() / "snapshots" / id;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100'000);
  const auto twin = acquire(key("twin"), spec());
  expect_refusal<SandboxUnavailable>([&] { restore("twin", id); }, "not whole");
  EXPECT_EQ(print(*twin, "echo lives"), "lives\n") << "what was there had to stay";
  std::ofstream(file, std::ios::app) << std::string(200'000, '\xff');
  expect_refusal<SandboxUnavailable>([&] { restore("twin", id); }, "not whole");
  EXPECT_TRUE(std::filesystem::is_empty(state() / "new"));
}

TEST_F(LinuxSnapshots, AreStoppedAndLeaveNothing) {
  acquire(key(), spec());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(backend().snapshot(key(), spec().kind, {.stop = stop.get_token()}),
               SandboxCancelled);
  EXPECT_EQ(files(), 0U);
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  EXPECT_THROW(backend().restore(key("twin"), spec(), id, {.stop = stop.get_token()}),
               SandboxCancelled);
  EXPECT_EQ(sandbox_directories().size(), 1U);
}

// As long as a guest likes, and it may have been taken over.
TEST_F(LinuxSnapshots, ThatAGuestStallsKeepNobodyFromEndingItsSandbox) {
  output(shell("echo x > /workspace/file"));
  ASSERT_EQ(kill(agent_of(sandbox_directories().at(0)), SIGSTOP), 0);
  auto taken = in_another_thread([&] { backend().snapshot(key(), spec().kind, {}); });
  ASSERT_TRUE(wait_for_events(state() / "snapshots", IN_CREATE, [&] { return files() == 1; }));
  EXPECT_EQ(backend().dispose(key()), 1);
  EXPECT_EQ(taken.get(), "SandboxUnavailable");
  EXPECT_EQ(files(), 0U);
}

TEST_F(LinuxSnapshots, AreWholeInTheirSandboxBeforeItsKeyIsLocked) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  const sys::UniqueFd locks(open((state() / "locks").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string name = local::lock_name(local::sandbox_name(key("twin"), spec().kind));
  auto lock = local::FileLock::attempt(locks.get(), name, local::FileLock::Kind::exclusive);
  ASSERT_TRUE(lock);
  auto restored = in_another_thread([&] { restore("twin", id); });
  EXPECT_TRUE(wait_for_events(state() / "new", IN_CREATE,
                              [&] { return !std::filesystem::is_empty(state() / "new"); }));
  EXPECT_TRUE(backend().dispose_snapshot(id));
  lock.reset();
  EXPECT_EQ(restored.get(), "NoSuchSnapshot") << "what its conversation's end took away came back";
  EXPECT_EQ(sandbox_directories().size(), 1U);
}

TEST_F(LinuxSnapshots, ThatDieBeforeTheyTakeAPlaceLeaveWhoHadIt) {
  output(shell("echo x > /workspace/file"));
  const std::string id = backend().snapshot(key(), spec().kind, {}).id;
  const auto twin = acquire(key("twin"), spec());
  const sys::UniqueFd locks(open((state() / "locks").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string name = local::lock_name(local::sandbox_name(key("twin"), spec().kind));
  auto lock = local::FileLock::attempt(locks.get(), name, local::FileLock::Kind::exclusive);
  ASSERT_TRUE(lock);
  auto restored = in_another_thread([&] { restore("twin", id); });
  // Whole, it waits for the key's lock.
  ASSERT_TRUE(wait_until_opened_twice(state() / "locks" / name));
  const std::filesystem::directory_iterator fresh(state() / "new");
  const pid_t agent = agent_of(fresh->path());
  ASSERT_GT(agent, 0);
  ASSERT_EQ(kill(agent, SIGKILL), 0);
  ASSERT_TRUE(wait_until_gone(agent));
  lock.reset();
  EXPECT_EQ(restored.get(), "SandboxUnavailable");
  EXPECT_EQ(print(*twin, "echo lives"), "lives\n");
}

class PooledSnapshots : public WarmPoolTest {};

// A held program is in a call of its own, which is open and nobody's.
TEST_F(PooledSnapshots, AreTakenBesideProgramsThatWait) {
  const auto sandbox = pooled_sandbox();
  sandbox->exec(shell("echo kept > /workspace/file"), {});
  wait_until_warm();
  await_ticks(ticks_of_a_held_program);
  // The held one's among them, and none of the twin's own: that gets a held program, too.
  const std::string list = "cd /workspace; ls -d */";
  const std::string there = sandbox->exec(shell(list), {}).stdout;
  const auto twin = pooled().fork(key(), key("twin"), spec(), {});
  EXPECT_EQ(twin->exec(shell("cat /workspace/file"), {}).stdout, "kept\n");
  const std::string came = twin->exec(shell(list), {}).stdout;
  EXPECT_GE(std::ranges::count(there, '\n'), 2) << there;
  std::istringstream directories(there);
  for (std::string each; std::getline(directories, each);) {
    EXPECT_THAT(came, Not(HasSubstr(each))) << "the directory of a call came along";
  }
  EXPECT_TRUE(was_held(*sandbox)) << "what waited was lost";
}

}  // namespace
}  // namespace casemate::linux_tests
