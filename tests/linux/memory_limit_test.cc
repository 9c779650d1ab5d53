// Memory as a limit of the linux backend: how it holds, and whose program is told of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/linux/limits.h"

namespace casemate::linux_tests {
namespace {

Resources little_memory() {
  Resources resources;
  resources.memory_bytes = stated(64 * kMiB);
  resources.disk_bytes = stated(1 * kMiB);
  return resources;
}

constexpr char kEatMemory[] = R"(
b = bytearray()
while True:
    b += b'x' * (1 << 20)
)";

// Has a child run it, and tells how that ended.
ExecRequest parent_of(const std::string& program) {
  return python("import subprocess, sys\nc = subprocess.run([sys.executable, '-c', \"\"\"" +
                program + "\"\"\"])\nprint(c.returncode)");
}

// RL-04
TEST_F(LinuxLimits, AProgramOutOfMemoryIsNamedSo) {
  NEEDS_CONTROL_GROUPS();
  const auto sandbox = limited(little_memory());
  const ExecResult result = sandbox->exec(python(kEatMemory), {});
  EXPECT_EQ(result.outcome, Outcome::out_of_memory);
  EXPECT_EQ(result.limit, Limit::memory);
  EXPECT_EQ(result.exit_code, std::nullopt);
  EXPECT_EQ(result.signal, std::nullopt);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_GT(result.peak_memory, 32 * kMiB);
  // The kernel counts the page that it refused, and it may have been a huge one.
  EXPECT_LE(result.peak_memory, 67 * kMiB);
  // Nothing of it carries over to the next call.
  const ExecResult next = sandbox->exec(python("print('warm')"), {});
  EXPECT_EQ(next.stdout, "warm\n");
  EXPECT_EQ(next.limit, std::nullopt);
  EXPECT_LT(next.peak_memory, 32 * kMiB);
}

// RL-04
TEST_F(LinuxLimits, AChildOutOfMemoryIsANoteOnTheProgramsOwnStatus) {
  NEEDS_CONTROL_GROUPS();
  const ExecResult result = limited(little_memory())->exec(parent_of(kEatMemory), {});
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.stdout, "-9\n");
  EXPECT_EQ(result.limit, Limit::memory);
}

// Waits for a line, and then does the rest.
std::unique_ptr<Process> start_waiting(Call& call, const std::string& rest) {
  ExecRequest request = shell("read line; " + rest);
  request.stdin_mode = StdinMode::piped;
  return call.start(request, {});
}

TEST_F(LinuxLimits, AProgramOutOfMemoryIsNoNoteOnOthersOfItsCall) {
  NEEDS_CONTROL_GROUPS();
  const auto call = limited(little_memory())->open_call({}, {});
  const auto living = start_waiting(*call, "exit 3");
  const auto killing = start_waiting(*call, "kill -9 $$");
  EXPECT_EQ(call->exec(python(kEatMemory), {}).outcome, Outcome::out_of_memory);
  living->close_stdin();
  const ExecResult lived = living->wait({});
  EXPECT_EQ(lived.exit_code, 3);
  EXPECT_EQ(lived.limit, std::nullopt);
  killing->close_stdin();
  const ExecResult killed = killing->wait({});
  EXPECT_EQ(killed.outcome, Outcome::signaled);
  EXPECT_EQ(killed.limit, std::nullopt);
}

// Whose child it was is not to be known.
TEST_F(LinuxLimits, AChildOutOfMemoryIsANoteOnAllProgramsThatRanInTheCall) {
  NEEDS_CONTROL_GROUPS();
  const auto call = limited(little_memory())->open_call({}, {});
  const auto beside = start_waiting(*call, "exit 3");
  EXPECT_EQ(call->exec(parent_of(kEatMemory), {}).limit, Limit::memory);
  beside->close_stdin();
  const ExecResult result = beside->wait({});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.limit, Limit::memory);
  EXPECT_EQ(call->exec(shell("exit 4"), {}).limit, std::nullopt) << "which began later";
}

// A program of a few pages that holds all the memory in a file without a name: by the size of
// processes, every one of the guest's own would be the kernel's first choice.
TEST_F(LinuxLimits, RunningOutOfMemoryNeverEndsTheGuestsOwnProcesses) {
  NEEDS_CONTROL_GROUPS();
  const auto sandbox = limited(little_memory());
  const auto bystander = sandbox->open_call({}, {});
  for (int round = 0; round < 5; ++round) {
    const ExecResult result = sandbox->exec(python(R"(
import ctypes, os
print('kept', flush=True)
fd = os.memfd_create('m')
libc = ctypes.CDLL(None, use_errno=True)
while True:
    if libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1 << 30)) == 0: break
)"),
                                            {});
    EXPECT_EQ(result.outcome, Outcome::out_of_memory);
    EXPECT_EQ(result.limit, Limit::memory);
    EXPECT_EQ(result.stdout, "kept\n");
    EXPECT_TRUE(result.stopped_known);
  }
  EXPECT_EQ(bystander->exec(shell("echo alive"), {}).stdout, "alive\n");
  EXPECT_TRUE(bystander->close());
}

TEST_F(LinuxLimits, WhatSocketsHoldIsBoundedToo) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.memory_bytes = stated(32 * kMiB);
  resources.disk_bytes = stated(1 * kMiB);
  // At most 160 MiB are tried. What a connection may hold below any bound is some KiB.
  const ExecResult result = limited(resources)->exec(python(R"(
import socket
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen(50)
held, queued = [], 0
for _ in range(40):
    a = socket.socket(); a.connect(listener.getsockname()); held += [a, listener.accept()[0]]
    a.setblocking(False)
    try:
        for _ in range(64): queued += a.send(b'x' * 65536)
    except OSError: pass
print(queued >> 20)
)"),
                                                     {});
  // Where they count as memory of the program's (version 2), that may end it.
  if (result.limit == Limit::memory) return;
  EXPECT_EQ(result.outcome, Outcome::exited) << result.stderr;
  EXPECT_LT(std::stoi("0" + result.stdout), 80);
}

TEST_F(LinuxLimits, AFullDiskDoesNotEatTheMemory) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.memory_bytes = stated(64 * kMiB);
  resources.disk_bytes = stated(64 * kMiB);
  const ExecResult result = limited(resources)->exec(python(R"(
try:
    with open('fill', 'wb', buffering=0) as f:
        while True: f.write(b'x' * (1 << 20))
except OSError as e: print(e.strerror)
b = bytearray(40 << 20)
for i in range(0, len(b), 4096): b[i] = 1
print('both')
)"),
                                                     {});
  EXPECT_EQ(result.stdout, "No space left on device\nboth\n");
  EXPECT_EQ(result.outcome, Outcome::exited);
  EXPECT_EQ(result.limit, std::nullopt);
}

TEST_F(LinuxLimits, WhatDatagramsHoldIsBoundedToo) {
  NEEDS_CONTROL_GROUPS();
  Resources resources;
  resources.memory_bytes = stated(32 * kMiB);
  resources.disk_bytes = stated(1 * kMiB);
  // At most 160 MiB are tried; what a socket may hold below any bound is some KiB.
  const ExecResult result = limited(resources)->exec(python(R"(
import socket
held = []
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); sender.setblocking(False)
for _ in range(40):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); s.setblocking(False)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22); held.append(s)
    try:
        for _ in range(70): sender.sendto(b'x' * 60000, s.getsockname())
    except OSError: pass
kept = 0
for s in held:
    try:
        while True: kept += len(s.recv(65536))
    except OSError: pass
print(kept >> 20)
)"),
                                                     {});
  EXPECT_EQ(result.outcome, Outcome::exited) << result.stderr;
  EXPECT_LT(std::stoi("0" + result.stdout), 40);
}

}  // namespace
}  // namespace casemate::linux_tests
