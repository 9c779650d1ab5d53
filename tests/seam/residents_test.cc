// Programs that stay: they have their call's scope and the sandbox's lifetime.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/seam/seam.h"
#include "tests/support/expect_refusal.h"

namespace casemate::seam {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

class Residents : public Seam {
 protected:
  static ExecRequest staying(ExecRequest request) {
    request.lifetime = Lifetime::sandbox;
    return request;
  }
  // Holds the lock and says so, for ever.
  static ExecRequest holder() {
    return staying(
        python(kHoldLock + "import time\nopen('ready', 'w').write('x')\ntime.sleep(1000)"s));
  }
};

// Plain calls are processes of the test and have no sandbox that would end what stays.
std::vector<Provider> with_sandboxes() {
  std::vector<Provider> found;
  for (const Provider& provider : providers()) {
    if (!provider.name.starts_with("plain")) found.push_back(provider);
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Every, Residents, testing::ValuesIn(with_sandboxes()), provider_name);

TEST_P(Residents, AProgramThatStaysOutlivesItsHandleAndItsCall) {
  std::unique_ptr<Process> process = call().start(holder(), {});
  awaited("ready");
  process.reset();
  EXPECT_TRUE(call().close()) << "what does not stay is known to have ended";
  call_ = sandbox().open_call({}, {});
  EXPECT_TRUE(lock_is_held());
}

TEST_P(Residents, ClosingTheCallEndsWhatDoesNotStay) {
  const auto other = sandbox().open_call({}, {});
  const auto process = other->start(staying(shell("sleep 1000")), {});
  other->start(python(kHoldLock + "import time\ntime.sleep(1000)"s), {});
  EXPECT_TRUE(other->close());
  EXPECT_FALSE(lock_is_held());
  process->signal(SIGTERM);
  EXPECT_EQ(process->wait({}).signal, "SIGTERM");
}

TEST_P(Residents, ItsScopeIsItsCallsAndGoesWithIt) {
  const std::string directory = call().directory();
  call().write_file("served", std::string_view("text"), directory + "/work", {});
  const auto process = call().start(
      staying(shell("cat served > ../../seen; until test -e ../../stop; do sleep 0.01; done; "
                    "test \"$(cat served)\" = text")),
      {});
  EXPECT_TRUE(call().close());
  call_ = sandbox().open_call({}, {});
  guest("touch ../../stop");
  const ExecResult result = process->wait({});
  EXPECT_EQ(result.exit_code, 0) << "its files were there after the call was closed";
  EXPECT_EQ(guest("cat ../../seen"), "text");
  // The call's process reports a program before it removes the scope.
  EXPECT_EQ(run(shell("until ! test -e " + directory + "; do sleep 0.01; done")).exit_code, 0);
}

TEST_P(Residents, OthersMeetItOnLoopback) {
  const auto other = sandbox().open_call({}, {});
  const auto process =
      other->start(staying(python("import socket\n"
                                  "server = socket.create_server(('127.0.0.1', 0))\n"
                                  "open('../../port', 'w').write(str(server.getsockname()[1]))\n"
                                  "import os\n"
                                  "os.rename('../../port', '../../port.ready')\n"
                                  "while True:\n"
                                  "  client, _ = server.accept()\n"
                                  "  client.sendall(b'served')\n"
                                  "  client.close()\n")),
                   {});
  EXPECT_TRUE(other->close());
  const ExecResult result =
      run(python("import os, socket, time\n"
                 "while not os.path.exists('../../port.ready'): time.sleep(0.01)\n"
                 "port = int(open('../../port.ready').read())\n"
                 "print(socket.create_connection(('127.0.0.1', port)).recv(100).decode())\n"));
  EXPECT_EQ(result.stdout, "served\n") << result.stderr;
  process->signal(SIGKILL);
  EXPECT_EQ(process->wait({}).signal, "SIGKILL");
}

TEST_P(Residents, WhatItPrintsGoesNowhereAndBlocksNobody) {
  ExecRequest request = staying(shell("head -c 10000000 /dev/zero; echo err >&2; exit 3"));
  const ExecResult result = call().exec(request, {});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.stdout + result.stderr, "");
  EXPECT_TRUE(result.stopped_known);
}

TEST_P(Residents, ADeadlineLeavesItAndAStopAndItsTimeoutEndIt) {
  auto process = call().start(holder(), {});
  awaited("ready");
  CallControl late;
  late.deadline = std::chrono::steady_clock::now() + 50ms;
  expect_refusal<SandboxTimeout>([&] { process->wait(late); });
  process.reset();
  EXPECT_TRUE(lock_is_held());

  StopFromElsewhere stop;
  const auto stopped = call().start(staying(shell("sleep 1000")), {});
  stop.request();
  EXPECT_EQ(stopped->wait(stop.control()).outcome, Outcome::cancelled);

  ExecRequest timed = staying(shell("sleep 1000"));
  timed.timeout = 50ms;
  EXPECT_EQ(call().exec(timed, {}).outcome, Outcome::timed_out);
}

TEST_P(Residents, OneWithInputOrACallbackIsRefused) {
  ExecRequest piped = staying(shell("cat"));
  piped.stdin_mode = StdinMode::piped;
  expect_refusal<InvalidArgument>([&] { call().start(piped, {}); }, "no input");
  ExecRequest heard = staying(shell("echo x"));
  heard.on_output = [](OutputStream, std::span<const char>) {};
  expect_refusal<InvalidArgument>([&] { call().start(heard, {}); }, "no output that anybody hears");
}

TEST_P(Residents, OneThatCannotStartIsRefusedAndLeavesNothing) {
  expect_refusal<SandboxFileError>([&] { call().start(staying(program({"nowhere"})), {}); });
  EXPECT_TRUE(call().close());
  call_ = sandbox().open_call({}, {});
}

}  // namespace
}  // namespace casemate::seam
