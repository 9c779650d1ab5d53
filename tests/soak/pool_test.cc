// That nothing survives of what was made ahead.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "casemate/core/errors.h"
#include "tests/soak/soak.h"

namespace casemate::soak {
namespace {

using namespace std::chrono_literals;
using linux_tests::shell;

// A host that takes a ready sandbox and an interpreter that waits in it. Each run of its program
// leaves a mark.
class PooledSoak : public Soak {
 protected:
  static ExpectedProgram program() {
    return {.interpreter = "/bin/sh", .path = "program/main", .environment = {}};
  }
  std::unique_ptr<local::LocalBackend> make_host() const override {
    return std::make_unique<LinuxBackend>(LinuxBackendOptions{
        .state_dir = state(),
        .log = {},
        .warm_pool = WarmPool{.spec = kept_spec(), .sandboxes = 1, .program = program()}});
  }
  static void live_with_pool(local::LocalBackend& host, const SandboxSpec& /*wanted*/) {
    acquire_surely(host, key("first"), kept_spec());
    CallControl control;
    control.deadline = std::chrono::steady_clock::now() + 60s;
    host.wait_until_warm(control);
    {
      const auto sandbox = acquire_surely(host, key(), kept_spec());
      const auto call = sandbox->open_call({.expects = program()}, {});
      call->write_file(program().path, std::string_view("echo x >> /home/user/runs; echo alive\n"),
                       call->directory(), {});
      ExecRequest request;
      request.command = Argv{{program().interpreter, call->directory() + "/" + program().path}};
      if (call->exec(request, {}).stdout != "alive\n") throw std::runtime_error("it did not run");
    }
    host.dispose(key());
    host.dispose(key("first"));
  }
  void after_life(const Stepped& stepped, const std::string& when) override {
    if (!stepped.killed) return;
    seen_.insert(runs());
    EXPECT_FALSE(seen_.contains("2\n")) << when;
  }
  // In what a killed host left behind.
  std::string runs() {
    const auto finder = another_backend();
    try {
      return finder->attach(key(), "test", {})
          ->exec(shell("cat /home/user/runs 2> /dev/null | wc -l"), {})
          .stdout;
    } catch (const NoSuchSandbox&) {
      return "0\n";
    }
  }
  std::set<std::string> seen_;
};

// LC-04
TEST_F(PooledSoak, AHostThatIsKilledWhileItTakesFromItsPoolLeavesNothingAndRunsNothingTwice) {
  kill_at_any_step(Victim::host, live_with_pool);
  EXPECT_TRUE(seen_.contains("1\n"))
      << "no kill came after the program's run and before its dispose";
}

// LC-04
TEST_F(PooledSoak, AKeeperThatIsKilledUnderAPoolLeavesNothingAndItsHostGoesOn) {
  kill_at_any_step(Victim::keeper, live_with_pool);
}

}  // namespace
}  // namespace casemate::soak
