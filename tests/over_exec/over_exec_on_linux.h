#pragma once

// For the tests of the file transport: a real sandbox, a real shell and a real Python.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/over_exec_guest.h"
#include "casemate/host_tools/tools_test.h"
#include "tests/linux/linux_test.h"
#include "tests/over_exec/resident_guest.h"

namespace casemate {

class OverExecOnLinux : public linux_tests::LinuxTest {
 protected:
  void SetUp() override {
    LinuxTest::SetUp();
    if (IsSkipped()) return;
    guest_.emplace(sandbox());
    layout_.emplace(guest_run_layout(guest_->call().directory()));
    options.timeout = std::chrono::seconds(60);
    options.poll_interval = std::chrono::milliseconds(5);
  }

  void TearDown() override {
    if (guest_) {
      EXPECT_FALSE(guest_->call().stat_file("host_tools", layout_->run_directory(), {}));
    }
    guest_.reset();
    LinuxTest::TearDown();
  }

  OverExecResult run(std::string_view program, const CallControl& control = {}) {
    const std::vector<std::string> names = registry->names();
    write(layout_->program(), program);
    write(layout_->module(), over_exec_module({.names = names,
                                               .max_calls = registry->surface().max_calls,
                                               .call_timeout = call_timeout}));
    host_run.emplace(registry, HostToolRunOptions{});
    return host_tool_calls_over_exec(guest_->access(), *host_run, *layout_, options, control);
  }

  // What a program prints that must succeed.
  std::string printed(std::string_view program) {
    const OverExecResult ended = run(program);
    EXPECT_EQ(ended.result.outcome, Outcome::exited);
    EXPECT_EQ(ended.result.exit_code, 0) << ended.result.stderr;
    EXPECT_TRUE(ended.notes.empty());
    return ended.result.stdout;
  }

  void write(const std::string& path, std::string_view text) {
    guest_->call().write_file(path, text, layout_->run_directory(), {});
  }

  // What a program that is to be seen to come so far does last.
  bool has_left_its_word() {
    const std::string& run = layout_->run_directory();
    return guest_->call().stat_file("work/left.txt", run, {}) &&
           guest_->call().read_file("work/left.txt", run, 100, {}) == "here";
  }

  // Runs what would go on for ever until its time is up, and again with four times as much where
  // that was before it had `come` so far as it goes: to its last word, unless said otherwise.
  OverExecResult run_out(std::string_view program,
                         const std::function<bool(const ExecResult&)>& come = {}) {
    for (options.timeout = std::chrono::seconds(2);; options.timeout *= 4) {
      OverExecResult ended = run(program);
      const bool came = come ? come(ended.result) : has_left_its_word();
      tidy();
      EXPECT_TRUE(came || options.timeout < std::chrono::seconds(30))
          << "its time is up before it came so far";
      if (came || options.timeout > std::chrono::seconds(30)) return ended;
    }
  }

  // A directory that its owner cannot enter stays until the call is closed.
  void tidy() {
    const std::string& transport = layout_->transport_directory();
    ExecRequest request;
    request.command =
        ShellLine{"chmod -R 700 '" + transport + "' 2>/dev/null; rm -rf '" + transport + "' '" +
                  layout_->run_directory() + "/away' '" + layout_->work_directory() + "/left.txt'"};
    ASSERT_EQ(guest_->exec(request).exit_code, 0);
  }

  // Whether a process of the run exists; by the guest's own view, in which it is not hidden.
  // Within 20 seconds: that the signal was sent is known, not when what got it is gone.
  bool ends(const std::string& pid) {
    ExecRequest request;
    request.command = Argv{{"/bin/sh", "-c",
                            "i=0; while kill -0 $1 2>/dev/null; do [ $i = 2000 ] && exit 1; "
                            "i=$((i+1)); /usr/bin/sleep 0.01; done",
                            "sh", pid}};
    return guest_->exec(request).exit_code == 0;
  }

  ResidentGuest& guest() { return *guest_; }
  const GuestRunLayout& layout() { return *layout_; }

  std::shared_ptr<HostToolRegistry> registry = registry_of({echo()});
  OverExecOptions options;
  std::chrono::nanoseconds call_timeout = std::chrono::seconds(300);
  std::optional<HostToolRun> host_run;

 private:
  std::optional<ResidentGuest> guest_;
  std::optional<GuestRunLayout> layout_;
};

}  // namespace casemate
