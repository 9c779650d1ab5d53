// Sandboxes of the linux backend over one multiplexed stream: host tools, and what it all costs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "casemate/host_tools/session.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/linux/linux_test.h"
#include "tests/support/streamed_linux_backend.h"

namespace casemate::linux_tests {
namespace {

using Clock = std::chrono::steady_clock;

class LinuxOverAStream : public LinuxTest {
 protected:
  void SetUp() override {
    LinuxTest::SetUp();
    if (IsSkipped()) return;
    streamed_ = std::make_unique<StreamedLinuxBackend>();
    over_ = streamed_->acquire(key(), spec(), {});
  }
  void TearDown() override {
    over_.reset();
    if (streamed_) streamed_->dispose(key());
    streamed_.reset();
    LinuxTest::TearDown();
  }

  // One call of a sandbox with host tools of its own.
  struct Opened {
    std::unique_ptr<HostToolSession> session;
    std::unique_ptr<Call> call;

    std::string output(const std::string& program) const {
      ExecRequest request = python("import casemate_tools as t\n" + program);
      request.environment = session->environment(call->host_tool_address());
      request.environment["PYTHONPATH"] = "/casemate/python";
      const ExecResult result = call->exec(request, {});
      EXPECT_EQ(result.exit_code, 0) << result.stdout << result.stderr;
      return result.stdout;
    }
  };
  static Opened open(Sandbox& sandbox) {
    auto session = std::make_unique<HostToolSession>(
        registry_of({echo()}, {.max_host_tool_calls_per_run = 100'000,
                               .response_limits = {kMiB, 64 * kMiB, 100'000}}),
        HostToolRunOptions{});
    auto call = sandbox.open_call({.host_tool_socket = session->socket()}, {});
    session->serve();
    return {std::move(session), std::move(call)};
  }

  Sandbox& over() { return *over_; }

  std::unique_ptr<StreamedLinuxBackend> streamed_;
  std::shared_ptr<Sandbox> over_;
};

TEST_F(LinuxOverAStream, HostToolsAreCalledFromThreadsAndChildren) {
  const Opened one = open(over());
  const Opened two = open(over());
  EXPECT_EQ(one.output(R"py(
import os, threading
def work():
    for i in range(50):
        assert t.call("echo", i=i) == {"i": i}
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if os.fork() == 0:
    t.call("echo")
    os._exit(0)
os.wait()
print(t.call("echo", done=True))
)py"),
            "{'done': True}\n");
  EXPECT_EQ(one.session->counters().dispatched, 402U);
  EXPECT_EQ(two.session->counters().dispatched, 0U);
}

TEST_F(LinuxOverAStream, ALargeAnswerAndALargeQuestionComeWhole) {
  const Opened opened = open(over());
  EXPECT_EQ(opened.output("x = 'x' * 900_000\nprint(len(t.call('echo', x=x)['x']))"), "900000\n");
}

// No bound: what it costs depends on the machine. For the reader of the test's output.
TEST_F(LinuxOverAStream, TellsWhatItCosts) {
  const auto median_of_true = [](Sandbox& sandbox) {
    const auto call = sandbox.open_call({}, {});
    std::vector<double> samples;
    for (int i = 0; i < 60; ++i) {
      const auto begin = Clock::now();
      ExecRequest request;
      request.command = Argv{{"/bin/true"}};
      EXPECT_EQ(call->exec(request, {}).exit_code, 0);
      samples.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    std::ranges::nth_element(samples, samples.begin() + 30);
    return samples[30];
  };
  const auto median_of_tool = [](Sandbox& sandbox) {
    const Opened opened = open(sandbox);
    return opened.output(R"py(
import time
samples = []
for _ in range(1000):
    begin = time.perf_counter_ns()
    t.call("echo")
    samples.append(time.perf_counter_ns() - begin)
print(f"{sorted(samples)[500] / 1000:.0f}", end="")
)py");
  };
  Sandbox& direct = streamed_->by_sockets(over().info().id);
  std::cout << fmt::format(
      "a program: {:.2f} ms by sockets, {:.2f} ms over a stream; a host-tool call: {} us and {} "
      "us\n",
      median_of_true(direct), median_of_true(over()), median_of_tool(direct),
      median_of_tool(over()));
}

// A guest program that dies takes the way to its sandbox with it, and leaves its calls to their
// end.
TEST_F(LinuxOverAStream, AKilledStreamEndsTheCallsOverIt) {
  const auto call = over().open_call({}, {});
  const auto process = call->start(shell("touch ../../here; exec sleep 1000"), {});
  streamed_->process_of(over().info().id).kill();
  EXPECT_THROW(process->wait({}), SandboxUnavailable);
  EXPECT_FALSE(call->close());
  EXPECT_THROW(over().open_call({}, {}), SandboxUnavailable);
}

}  // namespace
}  // namespace casemate::linux_tests
