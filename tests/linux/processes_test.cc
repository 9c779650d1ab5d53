// What a program leaves behind, and that calls do not see each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/linux/linux_test.h"
#include "tests/support/expect_refusal.h"

namespace casemate::linux_tests {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

class LinuxProcesses : public LinuxTest {
 protected:
  // All of the sandbox's processes, its agent too, seen from outside.
  std::set<ProcessIdentity> all_of_the_sandbox() {
    return family_of(agent_of(sandbox_directories().at(0)));
  }
  // Those that programs started: neither the agent nor below it our process for each call, nor
  // below that the first of the call's pid namespace.
  std::set<ProcessIdentity> all_of_programs() {
    std::set<ProcessIdentity> found;
    for (const pid_t call : children_of(agent_of(sandbox_directories().at(0)))) {
      for (const pid_t init : children_of(call)) {
        for (const ProcessIdentity& each : family_of(init)) {
          if (each.first != init) found.insert(each);
        }
      }
    }
    return found;
  }
  // Expects that all others end. Our own process for a call does so a moment after it reported the
  // call's end; one of a program's would be here for good.
  void expect_only(const std::set<ProcessIdentity>& expected) {
    for (const auto& [pid, start] : all_of_the_sandbox()) {
      if (expected.contains({pid, start})) continue;
      EXPECT_TRUE(wait_until_gone(pid)) << pid;
    }
    EXPECT_EQ(all_of_the_sandbox(), expected);
  }
};

// EX-01, EX-03
TEST_F(LinuxProcesses, AHostileProgramLeavesNothing) {
  sandbox();
  const auto before = all_of_the_sandbox();
  ASSERT_EQ(before.size(), 1U) << "the agent alone";
  ExecRequest request = python(R"(
import os, signal, subprocess, time
for s in range(1, 32):
    if s not in (signal.SIGKILL, signal.SIGSTOP): signal.signal(s, signal.SIG_IGN)
r, w = os.pipe()
if os.fork() == 0:                      # twice, a session of its own, the pipes inherited
    os.setsid()
    if os.fork() == 0:
        os.write(w, b'x')
        while True: time.sleep(0.01)
    os._exit(0)
os.read(r, 1)
for i in range(100):
    if os.fork() == 0:
        if i % 2: os.setsid()
        while True: time.sleep(60)
subprocess.Popen(['sh', '-c', 'trap "" TERM; (sleep 1000 &) ; echo; exec sleep 1000'], stdout=subprocess.PIPE).stdout.readline()
print('begun')
while True: time.sleep(60)
)");
  std::set<ProcessIdentity> hostile;
  request.on_output = [&](OutputStream, std::span<const char>) {
    if (hostile.empty()) hostile = all_of_programs();
  };
  // The program itself, a hundred, the one forked twice, and two that sleep. Four times as much
  // time where it was up before all of them were seen.
  constexpr std::size_t kAll = 104;
  for (auto time = 1500ms; hostile.size() < kAll && time < 2min; time *= 4) {
    hostile.clear();
    request.timeout = time;
    const ExecResult result = run(request);
    EXPECT_EQ(result.outcome, Outcome::timed_out);
    EXPECT_TRUE(result.stopped_known);
    EXPECT_EQ(still_running(hostile), std::set<ProcessIdentity>{});
    expect_only(before);
  }
  EXPECT_GE(hostile.size(), kAll);
}

TEST_F(LinuxProcesses, FiveHundredChildrenAndAPipeDoNotHoldTheAnswer) {
  SandboxSpec roomy = spec();
  roomy.resources.pids = stated(600);
  const auto own = acquire(key(), roomy);
  ExecRequest request = python(R"(
import os, time
for i in range(500):
    if os.fork() == 0:
        os.setsid()
        while True: time.sleep(60)
os.write(1, b'forked')
os.read(0, 1)
os._exit(7)
)");
  request.stdin_mode = StdinMode::piped;
  const auto call = own->open_call({}, {});
  std::unique_ptr<Process> process;
  std::set<ProcessIdentity> all;
  request.on_output = [&](OutputStream, std::span<const char>) {
    all = all_of_programs();
    process->close_stdin();
  };
  process = call->start(request, {});
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_EQ(all.size(), 501U);
  EXPECT_EQ(still_running(all), std::set<ProcessIdentity>{});
}

// EX-05
TEST_F(LinuxProcesses, TheLastBytesArriveWhenTheProgramEnds) {
  for (int i = 0; i < 50; ++i) {
    const ExecResult result =
        run(python("import os, subprocess\n"
                   "subprocess.Popen(['sleep', '40'])\n"
                   "os.write(1, b''.join(b'%06d\\n' % i for i in range(9000)))\n"
                   "os._exit(0)"));
    ASSERT_EQ(result.stdout.size(), 63000U);
    ASSERT_TRUE(result.stdout.ends_with("008999\n"));
  }
}

TEST_F(LinuxProcesses, AClosedCallEndsAProgramThatStillRuns) {
  sandbox();
  const auto before = all_of_the_sandbox();
  const auto call = sandbox().open_call({}, {});
  const auto process = call->start(python("import time\nwhile True: time.sleep(1)"), {});
  EXPECT_TRUE(call->close());
  expect_only(before);
}

TEST_F(LinuxProcesses, ADroppedCallEndsItsProgramsToo) {
  sandbox();
  const auto before = all_of_the_sandbox();
  {
    const auto call = sandbox().open_call({}, {});
    const auto process = call->start(shell("sleep 1000"), {});
  }
  expect_only(before);
}

// LC-14
TEST_F(LinuxProcesses, TwoCallsDoNotSeeEachOther) {
  const auto first = sandbox().open_call({}, {});
  const auto second = sandbox().open_call({}, {});
  ExecRequest writer = python(R"(
import ctypes, os, sys, time
open('own', 'w').write('first'); open('/tmp/own', 'w').write('first'); open('/dev/shm/own', 'w').write('first')
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(4711, 4096, 0o1666) >= 0)
sys.stdin.read()
)");
  writer.stdin_mode = StdinMode::piped;
  std::string printed;
  const auto process = first->start(writer, {});
  // The writer has written once the second call finds... nothing: so it is asked, not timed.
  const ExecResult look = [&] {
    std::jthread waiter([&] {
      // Pumps until its input ends.
      const ExecResult done = process->wait({});
      printed = done.stdout;
    });
    const ExecResult seen = second->exec(python(R"(
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(os.listdir('.'), os.listdir('/tmp'), os.listdir('/dev/shm'), libc.shmget(4711, 4096, 0o666))
print(len([n for n in os.listdir('/proc') if n.isdigit()]))
print(set(str(os.listdir('/workspace/' + n)) for n in os.listdir('/workspace') if '/workspace/' + n not in os.getcwd()))
)"),
                                         {});
    process->close_stdin();
    return seen;
  }();
  EXPECT_EQ(printed, "True\n");
  EXPECT_EQ(look.stdout, "[] [] [] -1\n2\n{'[]'}\n");
  EXPECT_NE(first->directory(), second->directory());
  EXPECT_TRUE(first->close());
  EXPECT_TRUE(second->close());
}

// Programs of one call may own the directory in which the other's lies, and know its name from
// there.
TEST_F(LinuxProcesses, NoCallCanTakeAnothersDirectoryAway) {
  const auto first = sandbox().open_call({}, {});
  const auto second = sandbox().open_call({}, {});
  EXPECT_EQ(second->exec(shell("echo own > file"), {}).exit_code, 0);
  const std::string theirs = second->directory();
  const ExecResult attack =
      first->exec(shell("D=" + theirs +
                        "; ls -A $D | wc -l; chmod 777 $D; rmdir $D; mv $D /workspace/gone; "
                        "mv -T /workspace/work $D; mkdir -p $D/work; echo false > $D/work/file; "
                        "rm -rf $D; ln -sfn /tmp $D; ls -d $D"),
                  {});
  EXPECT_EQ(attack.stdout, "0\n" + theirs + "\n");
  EXPECT_EQ(second->exec(shell("cat " + theirs + "/work/file; pwd; ls -A /tmp"), {}).stdout,
            "own\n" + theirs + "/work\n");
  EXPECT_TRUE(second->close());
  EXPECT_EQ(first->exec(shell("ls -d " + theirs + " 2>/dev/null || echo gone"), {}).stdout,
            "gone\n");
  EXPECT_TRUE(first->close());
}

TEST_F(LinuxProcesses, WhatAnEarlierCallLeftIsGoneAndWhatTheSandboxKeepsIsThere) {
  output(
      shell("echo a > x; echo a > /tmp/x; echo a > /dev/shm/x; echo kept > /workspace/kept; "
            "echo kept > ~/kept"));
  // Beside its own directory those of calls that are open or opened ahead, which are empty to it.
  EXPECT_EQ(output(shell("ls; ls /tmp /dev/shm | grep x; cat /workspace/kept ~/kept; "
                         "find /workspace/[0-9a-f]*[0-9a-f] -mindepth 1 | grep -vx $PWD; true")),
            "kept\nkept\n");
}

TEST_F(LinuxProcesses, ADeepTreeIsRemovedWithItsCall) {
  const ExecResult result = run(python(R"(
import os
for i in range(20000):
    os.mkdir('d'); os.chdir('d')
print('deep')
)"));
  EXPECT_EQ(result.stdout, "deep\n");
  EXPECT_EQ(output(shell("df --output=iused /workspace | tail -1 | awk '{print ($1 < 70)}'")),
            "1\n");
}

TEST_F(LinuxProcesses, ManyCallsAtOnceEachGetTheirOwnBytes) {
  sandbox();  // made before the threads need it
  std::vector<std::string> seen(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      threads.emplace_back([&, i] {
        seen[i] = run(shell("echo " + std::to_string(i) + " > out; sleep 0.1; cat out")).stdout;
      });
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], std::to_string(i) + "\n");
}

TEST_F(LinuxProcesses, FilesGoInAndOutAndNeverThroughALink) {
  const auto call = sandbox().open_call({}, {});
  const std::string content = "a\0b\xff"s;
  call->write_file("sub/file", content, call->directory() + "/work", {});
  EXPECT_EQ(call->exec(shell("cat sub/file; ln -s /etc/passwd link; ln -s / root"), {}).stdout,
            content);
  EXPECT_EQ(call->read_file("sub/file", call->directory() + "/work", 4, {}), content);
  expect_refusal<SandboxTransferCapExceeded>(
      [&] { call->read_file("sub/file", call->directory() + "/work", 3, {}); });
  expect_refusal<SandboxFileError>(
      [&] { call->read_file("link", call->directory() + "/work", 1000, {}); });
  expect_refusal<SandboxPathRefused>(
      [&] { call->read_file("root/etc/passwd", call->directory() + "/work", 1000, {}); });
}

// 0.6 ms of every program's start. Not for a sandbox whose Python is another than the build's.
TEST_F(LinuxTest, AnInterpreterFindsOurStartUpModuleCompiled) {
  ExecRequest request = python(R"(
import importlib.util, sys
module = sys.modules['sitecustomize']
if importlib.util.find_spec('sitecustomize').cached != module.__cached__: print('moved')
with open(module.__cached__, 'rb') as file: head = file.read(8)
print(module.__file__, head[:4] == importlib.util.MAGIC_NUMBER, head[4])
)");
  request.environment["PYTHONPATH"] = "/casemate/python";
  // 1: by hash, never checked against the source.
  EXPECT_EQ(output(std::move(request)), "/casemate/python/sitecustomize.py True 1\n");
}

// With one user id it is the program's own.
TEST_F(LinuxProcesses, AWorkDirectoryThatAProgramClosedIsNoHindranceToLaterCalls) {
  for (const char* mode : {"000", "500", "777"}) {
    EXPECT_EQ(run(shell(std::string("chmod ") + mode + " /workspace 2> /dev/null; true")).exit_code,
              0);
    const auto call = sandbox().open_call({}, {});
    call->write_file("work/file", std::string_view("content"), call->directory(), {});
    EXPECT_EQ(call->read_file("work/file", call->directory(), 100, {}), "content") << mode;
    EXPECT_EQ(call->exec(shell("cat file; chmod 000 .. . 2> /dev/null; true"), {}).stdout,
              "content")
        << mode;
    EXPECT_TRUE(call->close()) << mode;
  }
}

}  // namespace
}  // namespace casemate::linux_tests
