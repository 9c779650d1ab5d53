#pragma once

// For the tests of the linux backend: one backend with a state directory of its own, and the view
// from outside: which processes are in a namespace, judged by inode and start time, not by name.

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/errors.h"
#include "casemate/core/sandbox.h"

namespace casemate::linux_tests {

// The backend under test: linux, or with CASEMATE_TEST_OCI_RUNTIME in the environment oci with that
// runtime, for the behaviour that both share (tests/oci).
std::unique_ptr<local::LocalBackend> make_backend(LinuxBackendOptions options);
// Whether it is oci.
bool under_a_runtime();

// A process for good: a number that came back with another start time is another process.
using ProcessIdentity = std::pair<pid_t, std::string>;

// The processes of this machine in a namespace ("pid", "user", ...) with that inode.
std::set<ProcessIdentity> processes_in(const std::string& kind, const std::string& inode);

// Control groups of that sandbox, in every hierarchy.
std::vector<std::string> control_groups_of(const std::string& id);

// Those that a process with one thread started itself and that are there yet.
std::vector<pid_t> children_of(pid_t parent);

// A process and all that come from it, its own pid namespaces included.
std::set<ProcessIdentity> family_of(pid_t ancestor);

// Those of them that still run.
std::set<ProcessIdentity> still_running(const std::set<ProcessIdentity>& processes);

// Whether this user may make control groups.
bool control_groups_are_had();
#define NEEDS_CONTROL_GROUPS() \
  if (!control_groups_are_had()) GTEST_SKIP() << "this user may make no control groups"

// Waits until nothing is in the directory but what `allowed` names; by inotify, at most 20 s.
bool wait_until_empty(const std::filesystem::path& directory);

// Waits until the process has ended, at most 20 s; true when it has.
bool wait_until_gone(pid_t pid);

// The keeper that an agent comes from, also while a runtime that has not ended yet is between them;
// -1 if there is none.
pid_t keeper_of(pid_t agent);

// The agent of a sandbox, found by its lease socket; -1 when nobody listens.
pid_t agent_of(const std::filesystem::path& sandbox_directory);

ExecRequest shell(std::string line);
ExecRequest python(std::string program);

class LinuxTest : public testing::Test {
 protected:
  void SetUp() override;
  // Disposes everything and expects that nothing is left: no directory, no group, no process.
  void TearDown() override;

  local::LocalBackend& backend() { return *backend_; }
  // One more on the same state directory, as another process has it.
  std::unique_ptr<local::LocalBackend> another_backend() const;
  std::filesystem::path state() const { return state_; }
  // Directories of the live sandboxes.
  std::vector<std::filesystem::path> sandbox_directories() const;

  static SandboxKey key(std::string thread = "thread") {
    return {"scope", std::move(thread), "agent"};
  }
  static SandboxSpec spec();

  // A sandbox under key() with spec(), made at the first use.
  Sandbox& sandbox();
  ExecResult run(const ExecRequest& request) { return sandbox().exec(request, {}); }
  // What a shell line or Python program prints; it must exit with 0.
  std::string output(const ExecRequest& request);
  // Expects that what it calls its first process is the agent: process 1 of a pid namespace, made
  // by a keeper.
  static void expect_agent_first(const Sandbox& sandbox);
  // Remembers it for TearDown's look at the leftovers.
  std::shared_ptr<Sandbox> acquire(const SandboxKey& sandbox_key, const SandboxSpec& sandbox_spec);

 private:
  std::filesystem::path state_;
  std::unique_ptr<local::LocalBackend> backend_;
  std::shared_ptr<Sandbox> sandbox_;
  std::set<std::string> ids_;
};

}  // namespace casemate::linux_tests
