// What a runtime with a kernel of its own makes different: gVisor's runsc.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "casemate/backends/oci/oci_backend.h"
#include "casemate/backends/oci/runtime.h"
#include "casemate/core/errors.h"
#include "tests/linux/linux_test.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::oci_tests {
namespace {

using linux_tests::control_groups_are_had;
using linux_tests::python;
using linux_tests::shell;
namespace fs = std::filesystem;

constexpr char kSearch[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Runsc : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = oci::find_program("runsc", kSearch);
    if (!found) GTEST_SKIP() << "the OCI runtime runsc is not installed";
    if (geteuid() != 0) GTEST_SKIP() << "runsc needs root";
    runsc_ = *found;
    backend_ =
        std::make_unique<OciBackend>(OciBackendOptions{.runtime = runsc_, .state_dir = state()});
  }
  void TearDown() override {
    if (!backend_) return;
    for (const SandboxRecord& record : backend_->list()) backend_->dispose_id(record.id);
    for (const char* name : {"sandboxes", "new", "trash"}) {
      EXPECT_TRUE(linux_tests::wait_until_empty(state() / name)) << name;
    }
  }

  OciBackend& backend() { return *backend_; }
  fs::path state() const { return scratch_ / "state"; }
  fs::path scratch(const char* name) const { return scratch_ / name; }
  std::shared_ptr<Sandbox> acquire(SandboxSpec spec = Runsc::spec()) {
    return backend_->acquire(key_, spec, {});
  }
  static SandboxSpec spec() {
    SandboxSpec spec;
    spec.kind = "test";
    return spec;
  }
  // The process that keeps the only sandbox there is.
  pid_t enclosure() const {
    for (const auto& entry : fs::directory_iterator(state() / "sandboxes")) {
      return linux_tests::agent_of(entry.path());
    }
    return -1;
  }
  static std::string output(Sandbox& sandbox, const ExecRequest& request) {
    const ExecResult result = sandbox.exec(request, {});
    EXPECT_EQ(result.exit_code, 0) << result.stderr;
    return result.stdout;
  }

  const SandboxKey key_{"scope", "thread", "agent"};

 private:
  Scratch scratch_;
  std::string runsc_;
  std::unique_ptr<OciBackend> backend_;
};

TEST_F(Runsc, ASandboxHasAKernelOfItsOwnAndTheRungThatGoesWithIt) {
  const auto sandbox = acquire();
  utsname host{};
  ASSERT_EQ(uname(&host), 0);
  EXPECT_NE(output(*sandbox, shell("uname -r")), std::string(host.release) + "\n");
  EXPECT_EQ(sandbox->info().isolation, Isolation::hardened_container);
  EXPECT_EQ(backend().declarations().isolation, Isolation::hardened_container);
  EXPECT_EQ(sandbox->first_process(), std::nullopt) << "it is no process of this machine";
}

TEST_F(Runsc, ARuntimeThatOnlyCallsItselfSoIsRefusedBeforeAnythingIsDone) {
  const fs::path liar = scratch("liar");
  // Starts the guest program as it stands, on this machine's kernel.
  std::ofstream(liar) << "#!/bin/sh\n[ \"$1\" = --version ] && echo runsc version 9.9 && exit 0\n"
                         "exec /run/casemate-guest enclosed /workspace 16 4 1 1048576\n";
  fs::permissions(liar, fs::perms::owner_all);
  OciBackend own({.runtime = liar, .state_dir = state()});
  expect_refusal<SandboxUnavailable>([&] { own.acquire(key_, spec(), {}); },
                                     "share this machine's");
  EXPECT_FALSE(own.probe().available);
}

TEST_F(Runsc, WhatItCannotHoldIsNotDeclaredAndRefusedWhereItIsStated) {
  const BackendDeclarations declared = backend().declarations();
  EXPECT_EQ(declared.egress_modes, std::set<Egress>{Egress::closed});
  for (const Limit limit : {Limit::memory, Limit::pids, Limit::disk}) {
    EXPECT_FALSE(declared.enforceable_limits.contains(limit)) << to_string(limit);
  }
  for (const Limit limit : {Limit::files, Limit::time}) {
    EXPECT_TRUE(declared.enforceable_limits.contains(limit)) << to_string(limit);
  }
  SandboxSpec spec = Runsc::spec();
  spec.resources.memory_bytes = stated(64 * kMiB);
  expect_refusal<SandboxLimitNotEnforceable>([&] { acquire(spec); }, "memory");
  const auto sandbox = acquire();
  EXPECT_TRUE(sandbox->info().limits_not_held.contains(Limit::memory));
}

TEST_F(Runsc, CallsDoNotSeeEachOther) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  ExecRequest waiting = shell("echo secret > /tmp/file; echo secret > file; echo; exec cat");
  waiting.stdin_mode = StdinMode::piped;
  bool begun = false;
  waiting.on_output = [&](OutputStream, std::span<const char>) { begun = true; };
  const auto process = call->start(waiting, {});
  ASSERT_NO_THROW(process->write_stdin(std::string(1, '\n'), {}));
  const std::string seen = output(*sandbox, python(R"py(
import os
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) == [1, os.getpid()])
print(os.listdir("/proc/1"), os.path.exists("/tmp/file"))
for folder in os.listdir("/workspace"):
    try: os.listdir("/workspace/" + folder)
    except PermissionError: continue
    if os.path.exists(f"/workspace/{folder}/work/file"): print("sees", folder)
)py"));
  EXPECT_EQ(seen, "True\n[] False\n");
  process->close_stdin();
  EXPECT_EQ(process->wait({}).exit_code, 0);
}

TEST_F(Runsc, WhatAProgramLeavesRunningEndsWithIt) {
  const auto sandbox = acquire();
  const auto call = sandbox->open_call({}, {});
  const ExecResult result = call->exec(shell("setsid sleep 600 & setsid sleep 600 & echo"), {});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.stopped_known);
  EXPECT_TRUE(call->close());
}

TEST_F(Runsc, WhoKeepsASandboxHasNoRightsLeftAndItsEndIsTheSandboxs) {
  const auto sandbox = acquire();
  const pid_t pid = enclosure();
  ASSERT_GT(pid, 0);
  const std::string status = text_of("/proc/" + std::to_string(pid) + "/status");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    EXPECT_NE(status.find(std::string(set) + ":\t0000000000000000\n"), std::string::npos) << set;
  }
  EXPECT_NE(status.find("NoNewPrivs:\t1\n"), std::string::npos);
  const auto family = linux_tests::family_of(pid);
  EXPECT_GT(family.size(), 2U) << "the runtime's processes";
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(linux_tests::wait_until_gone(pid));
  EXPECT_TRUE(linux_tests::still_running(family).empty()) << "ended before it was";
  expect_refusal<SandboxUnavailable>([&] { sandbox->exec(shell("true"), {}); });
  const auto second = acquire();
  EXPECT_FALSE(second->info().reused);
  EXPECT_EQ(output(*second, shell("echo alive")), "alive\n");
}

TEST_F(Runsc, WhatTakesTooMuchMemoryEndsAndNobodyElseIsHurt) {
  NEEDS_CONTROL_GROUPS();
  acquire();
  SandboxKey other = key_;
  other.thread_id = "other";
  const auto neighbour = backend().acquire(other, spec(), {});
  const ExecRequest flood = python(
      "block = bytearray()\n"
      "while len(block) < 4 << 30: block += b'x' * (16 << 20)\n"
      "print('has it')");
  // Of the machine's choice: the program alone, or the kernel of the sandbox with all there is.
  try {
    const ExecResult result = acquire()->exec(flood, {});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.stdout, "");
  } catch (const SandboxUnavailable&) {
  }
  EXPECT_EQ(output(*neighbour, shell("echo alive")), "alive\n");
  EXPECT_EQ(output(*acquire(), shell("echo alive")), "alive\n");
}

}  // namespace
}  // namespace casemate::oci_tests
