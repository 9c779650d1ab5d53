#pragma once

// A backend with a warm pool of one sandbox and one held interpreter, beside one without.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/times.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/vocabulary.h"
#include "casemate/kinds/codeact/run.h"
#include "tests/linux/linux_test.h"

namespace casemate::linux_tests {

// Until the clock in which /proc tells when a process began has gone on by so many of its ticks,
// which are of 10 ms: whatever waits now has waited for so long then.
inline void await_ticks(clock_t ticks) {
  const clock_t until = times(nullptr) + ticks;
  while (times(nullptr) < until) std::this_thread::yield();
}

class WarmPoolTest : public LinuxTest {
 protected:
  void SetUp() override {
    LinuxTest::SetUp();
    if (IsSkipped()) return;
    make_pooled({});
  }
  void make_pooled(std::vector<std::string> imports) {
    pooled_ =
        make_backend(LinuxBackendOptions{.state_dir = state(),
                                         .log = {},
                                         .warm_pool = WarmPool{.spec = spec(),
                                                               .sandboxes = 1,
                                                               .program = program(),
                                                               .programs = 1,
                                                               .imports = std::move(imports)}});
  }
  void TearDown() override {
    pooled_.reset();
    LinuxTest::TearDown();
  }

  static ExpectedProgram program() { return codeact_expected_program("host"); }
  local::LocalBackend& pooled() { return *pooled_; }
  void end_pooled() { pooled_.reset(); }

  void wait_until_warm() {
    CallControl control;
    control.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ASSERT_TRUE(pooled().wait_until_warm(control));
  }

  std::shared_ptr<Sandbox> pooled_sandbox() {
    auto sandbox = pooled().acquire(key(), spec(), {});
    wait_until_warm();
    return sandbox;
  }

  static ExecRequest request_for(const Call& call) {
    ExecRequest request;
    request.command = Argv{{program().interpreter, call.directory() + "/" + program().path}};
    request.environment = program().environment;
    return request;
  }

  // As a kind does it, in a sandbox of the pool's backend or of one without.
  static ExecResult run_program(Sandbox& sandbox, std::string_view code,
                                CallProfile profile = {.expects = program()}) {
    const auto call = sandbox.open_call(profile, {});
    call->write_file(program().path, code, call->directory(), {});
    return call->exec(request_for(*call), {});
  }
  static std::string without_call_id(std::string text, const std::string& id) {
    for (std::size_t at = text.find(id); at != std::string::npos; at = text.find(id)) {
      text.replace(at, id.size(), "CALL");
    }
    return text;
  }
  // What the program says and what became of it, with its call's id taken out.
  static std::string say(Sandbox& sandbox, std::string_view code) {
    const auto call = sandbox.open_call({.expects = program()}, {});
    call->write_file(program().path, code, call->directory(), {});
    ExecRequest request = request_for(*call);
    const ExecResult result = call->exec(request, {});
    std::string text = result.stdout + result.stderr;
    text += result.exit_code ? "exit " + std::to_string(*result.exit_code)
                             : "signal " + result.signal.value_or("none");
    text += fmt::format(", {}, limit {}", to_string(result.outcome),
                        result.limit ? to_string(*result.limit) : "none");
    if (!result.stopped_known) text += ", its end not known";
    return without_call_id(std::move(text), call->id());
  }
  // Whether the program had been started before its file was there: the pool's share of the run.
  // What waits is known by its age, which has to have grown by so much before this is asked.
  static constexpr clock_t ticks_of_a_held_program = 7;
  static bool was_held(Sandbox& sandbox, std::string_view code_before = "") {
    const ExecResult result = run_program(
        sandbox, std::string(code_before) +
                     "import os, time\n"
                     "ticks = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19])\n"
                     "made = os.stat(__file__).st_mtime\n"
                     "age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / 100\n"
                     "print(time.time() - age < made - 0.05)\n");
    return result.stdout == "True\n";
  }

 private:
  std::unique_ptr<local::LocalBackend> pooled_;
};

}  // namespace casemate::linux_tests
