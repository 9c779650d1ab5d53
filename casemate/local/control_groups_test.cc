#include "casemate/local/control_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "casemate/sys/file.h"

namespace casemate::local {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ControlGroupLayout version1() {
  const ControllerPlace cpu{"/sys/fs/cgroup/cpu,cpuacct", false};
  return {ControllerPlace{"/sys/fs/cgroup/memory", false},
          ControllerPlace{"/sys/fs/cgroup/with space", false}, cpu, cpu};
}

ControlGroupLayout version2() {
  const ControllerPlace place{"/sys/fs/cgroup", true};
  return {place, place, place, place};
}

Resources resources() {
  Resources values;
  values.memory_bytes = stated(100);
  values.disk_bytes = stated(20);
  values.cpu_millis = stated(1500);
  return values;
}

std::vector<std::string> written(const std::vector<GroupStep>& steps) {
  std::vector<std::string> lines;
  for (const GroupStep& step : steps) {
    std::string line = step.directory;
    if (!step.file.empty()) line += "/" + step.file + " = " + step.value;
    line += step.holds ? " : " + std::string(to_string(*step.holds)) : "";
    lines.push_back(line);
  }
  return lines;
}

TEST(ControlGroups, AVersion1SandboxIsBoundedInEachHierarchy) {
  EXPECT_THAT(
      written(sandbox_steps(version1(), "ID", resources())),
      ElementsAre("/sys/fs/cgroup/memory/casemate : memory",
                  "/sys/fs/cgroup/memory/casemate/ID : memory",
                  "/sys/fs/cgroup/memory/casemate/ID/calls : memory",
                  "/sys/fs/cgroup/memory/casemate/ID/calls/memory.limit_in_bytes = 120 : memory",
                  "/sys/fs/cgroup/memory/casemate/ID/calls/memory.memsw.limit_in_bytes = 120",
                  "/sys/fs/cgroup/memory/casemate/ID/calls/memory.kmem.tcp.limit_in_bytes = 120",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls/cpu.cfs_quota_us = 150000 : cpu",
                  "/sys/fs/cgroup/with space/casemate : pids",
                  "/sys/fs/cgroup/with space/casemate/ID : pids",
                  "/sys/fs/cgroup/with space/casemate/ID/calls : pids"));
}

TEST(ControlGroups, AVersion2GroupThatASandboxLivesInAsAWholeHandsNothingDown) {
  const auto steps = sandbox_steps(version2(), "ID", resources(), GroupMembers::whole_sandbox);
  const auto lines = written(steps);
  EXPECT_THAT(lines, Contains("/sys/fs/cgroup/casemate/ID/calls/memory.max = 120 : memory"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("/calls/cgroup.subtree_control"))));
  EXPECT_THAT(lines,
              Contains("/sys/fs/cgroup/casemate/ID/cgroup.subtree_control = +memory : memory"));
}

TEST(ControlGroups, AVersion2SandboxHandsEachControllerDown) {
  EXPECT_THAT(
      written(sandbox_steps(version2(), "ID", resources())),
      ElementsAre("/sys/fs/cgroup/cgroup.subtree_control = +memory : memory",
                  "/sys/fs/cgroup/casemate : memory",
                  "/sys/fs/cgroup/casemate/cgroup.subtree_control = +memory : memory",
                  "/sys/fs/cgroup/casemate/ID : memory",
                  "/sys/fs/cgroup/casemate/ID/cgroup.subtree_control = +memory : memory",
                  "/sys/fs/cgroup/casemate/ID/calls : memory",
                  "/sys/fs/cgroup/casemate/ID/calls/cgroup.subtree_control = +memory : memory",
                  "/sys/fs/cgroup/casemate/ID/calls/memory.max = 120 : memory",
                  "/sys/fs/cgroup/casemate/ID/calls/memory.swap.max = 0",
                  "/sys/fs/cgroup/casemate/ID/agent : memory",
                  "/sys/fs/cgroup/cgroup.subtree_control = +cpu : cpu",
                  "/sys/fs/cgroup/casemate/cgroup.subtree_control = +cpu : cpu",
                  "/sys/fs/cgroup/casemate/ID/cgroup.subtree_control = +cpu : cpu",
                  "/sys/fs/cgroup/casemate/ID/calls/cpu.max = 150000 100000 : cpu",
                  "/sys/fs/cgroup/cgroup.subtree_control = +pids : pids",
                  "/sys/fs/cgroup/casemate/cgroup.subtree_control = +pids : pids",
                  "/sys/fs/cgroup/casemate/ID/cgroup.subtree_control = +pids : pids",
                  "/sys/fs/cgroup/casemate/ID/calls/cgroup.subtree_control = +pids : pids"));
}

TEST(ControlGroups, ACallHasAProcessBound) {
  EXPECT_THAT(written(call_steps(version2(), "ID", "abc", 128)),
              ElementsAre("/sys/fs/cgroup/casemate/ID/calls/call-abc : memory",
                          "/sys/fs/cgroup/casemate/ID/calls/call-abc/pids.max = 128 : pids"));
  EXPECT_EQ(call_directories(version1(), "ID", "abc").size(), 3U);
  EXPECT_THAT(member_directories(version1(), "ID", "abc"),
              ElementsAre("/sys/fs/cgroup/memory/casemate/ID/calls/call-abc",
                          "/sys/fs/cgroup/with space/casemate/ID/calls/call-abc",
                          "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls/call-abc",
                          "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls"));
  EXPECT_THAT(call_directories(version2(), "ID", "abc"),
              ElementsAre("/sys/fs/cgroup/casemate/ID/calls/call-abc"));
}

// The rules of version 2 that matter, in memory: what a group offers is what the one above handed
// on, a bound's file is there only where its controller is, and a group that hands controllers on
// has no processes of its own (unless it is the root).
class FakeKernel {
 public:
  FakeKernel() { groups_["/sys/fs/cgroup"]; }

  std::string apply(const GroupStep& step) {
    if (step.file.empty()) {
      if (!groups_.contains(parent(step.directory))) return "no group above " + step.directory;
      groups_[step.directory];
      return "";
    }
    const auto found = groups_.find(step.directory);
    if (found == groups_.end()) return "no group " + step.directory;
    Group& group = found->second;
    if (step.file != "cgroup.subtree_control") {
      const std::string controller = step.file.substr(0, step.file.find('.'));
      return offered(step.directory).contains(controller) ? "" : "no file " + step.file;
    }
    if (group.processes && step.directory != "/sys/fs/cgroup") return "EBUSY " + step.directory;
    const std::string controller = step.value.substr(1);
    if (!offered(step.directory).contains(controller)) return "not offered: " + controller;
    group.handed_on.insert(controller);
    return "";
  }

  std::string put_process(const std::string& directory) {
    const auto found = groups_.find(directory);
    if (found == groups_.end()) return "no group " + directory;
    if (!found->second.handed_on.empty()) return "EBUSY " + directory;
    found->second.processes = true;
    return "";
  }

 private:
  struct Group {
    std::set<std::string> handed_on;
    bool processes = false;
  };
  std::set<std::string> offered(const std::string& directory) const {
    if (directory == "/sys/fs/cgroup") return {"cpu", "io", "memory", "pids"};
    return groups_.at(parent(directory)).handed_on;
  }
  static std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

  std::map<std::string, Group> groups_;
};

TEST(ControlGroups, AVersion2KernelTakesEveryStepAndEveryProcess) {
  FakeKernel kernel;
  const auto apply = [&](const std::vector<GroupStep>& steps) {
    for (const GroupStep& step : steps) EXPECT_EQ(kernel.apply(step), "") << step.file;
  };
  for (const char* id : {"ONE", "TWO"}) {
    apply(sandbox_steps(version2(), id, resources()));
    ASSERT_EQ(agent_directories(version2(), id).size(), 1U);
    EXPECT_EQ(kernel.put_process(agent_directories(version2(), id)[0]), "");
    // A second one while the first has its processes, with nothing written above them.
    for (const char* call : {"abc", "def"}) {
      apply(call_steps(version2(), id, call, 128));
      ASSERT_EQ(member_directories(version2(), id, call).size(), 1U);
      EXPECT_EQ(kernel.put_process(member_directories(version2(), id, call)[0]), "");
    }
  }
}

TEST(ControlGroups, WhatTheAgentLivesInIsMadeFirstAndTheRestBesideIt) {
  FakeKernel kernel;
  const std::vector<GroupStep> all = sandbox_steps(version2(), "ID", resources());
  const PartedSteps parts = part_steps(all, agent_directories(version2(), "ID"));
  for (const GroupStep& step : parts.leading) EXPECT_EQ(kernel.apply(step), "") << step.file;
  EXPECT_EQ(kernel.put_process(agent_directories(version2(), "ID")[0]), "");
  for (const GroupStep& step : parts.others) EXPECT_EQ(kernel.apply(step), "") << step.file;
  EXPECT_EQ(parts.leading.size() + parts.others.size(), all.size());
  EXPECT_FALSE(parts.others.empty());
  // Of version 1 two directories in each of two hierarchies.
  EXPECT_EQ(
      part_steps(sandbox_steps(version1(), "ID", resources()), agent_directories(version1(), "ID"))
          .leading.size(),
      4U);
}

TEST(ControlGroups, NothingIsMadeWhereThereAreNone) {
  EXPECT_TRUE(sandbox_steps({}, "ID", resources()).empty());
  EXPECT_TRUE(sandbox_directories({}, "ID").empty());
  EXPECT_TRUE(call_steps({}, "ID", "abc", 128).empty());
}

// A tree of plain files in place of a cgroup file system.
class FakeTree : public testing::Test {
 protected:
  FakeTree() {
    char name[] = "/tmp/casemate-groups-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~FakeTree() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string get(const std::string& path) const {
    std::ifstream file(root_ / path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ControllerPlace place(bool unified) const { return {root_, unified}; }

  std::filesystem::path root_;
};

// RL-06
TEST_F(FakeTree, AWriteThatFailsIsALimitThatIsNotHeldAndNeverQuiet) {
  const std::vector<GroupStep> steps = {{root_ / "g", "", "", Limit::memory},
                                        {root_ / "g", "memory.max", "1", Limit::memory},
                                        {root_ / "g", "optional", "1", std::nullopt},
                                        {root_ / "none/g", "", "", Limit::cpu},
                                        {root_ / "none/g", "cpu.max", "1", Limit::cpu}};
  const auto failed = carry_out(steps);
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_THAT(failed.at(Limit::memory), testing::HasSubstr("memory.max"));
  EXPECT_THAT(failed.at(Limit::cpu), testing::HasSubstr("none/g"));
  put("g/memory.max", "");
  put("none/placeholder", "");
  EXPECT_EQ(carry_out({steps[0], steps[1], steps[2], steps[3]}).size(), 0U);
  EXPECT_EQ(get("g/memory.max"), "1");
}

TEST_F(FakeTree, CountersOfVersion2AreRead) {
  put("casemate/ID/calls/call-abc/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
  put("casemate/ID/calls/call-abc/memory.peak", "4096\n");
  put("casemate/ID/calls/call-abc/pids.events", "max 7\n");
  put("casemate/ID/calls/call-abc/cpu.stat", "usage_usec 1500\nuser_usec 1000\n");
  put("casemate/ID/memory.current", "8192\n");
  put("casemate/ID/pids.current", "4\n");
  const ControlGroupLayout layout{place(true), place(true), place(true), place(true)};
  const GroupCounters counters = CounterFiles(layout, "ID", "abc").read();
  EXPECT_EQ(counters.memory_kills, 2U);
  EXPECT_EQ(counters.peak_memory, 4096U);
  EXPECT_EQ(counters.refused_forks, 7U);
  EXPECT_EQ(counters.cpu_nanoseconds, 1500000U);
  EXPECT_EQ(cpu_counter_file(layout, "ID", "abc"), root_ / "casemate/ID/calls/call-abc/cpu.stat");
  EXPECT_EQ(read_use(layout, "ID").memory_bytes, 8192U);
  EXPECT_EQ(read_use(layout, "ID").processes, 4U);
}

// Of what the write to the other file costs, 10 ms on a busy machine, a test cannot hold a bound.
TEST_F(FakeTree, ProcessesJoinByTheFileThatCostsNoGracePeriodWhereThereIsOne) {
  put("one/tasks", "");
  put("one/cgroup.procs", "");
  put("two/cgroup.procs", "");
  const std::vector<sys::UniqueFd> members =
      open_members({root_ / "one", root_ / "two", root_ / "missing"});
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(sys::path_of(members[0].get()), root_ / "one/tasks");
  EXPECT_EQ(sys::path_of(members[1].get()), root_ / "two/cgroup.procs");
}

TEST_F(FakeTree, CountersOfVersion1AreRead) {
  put("casemate/ID/calls/call-abc/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  put("casemate/ID/calls/call-abc/memory.max_usage_in_bytes", "4096\n");
  put("casemate/ID/calls/call-abc/cpuacct.usage", "1500\n");
  const ControlGroupLayout layout{place(false), place(false), place(false), place(false)};
  const GroupCounters counters = CounterFiles(layout, "ID", "abc").read();
  EXPECT_EQ(counters.memory_kills, 1U);
  EXPECT_EQ(counters.peak_memory, 4096U);
  EXPECT_EQ(counters.cpu_nanoseconds, 1500U);
  EXPECT_EQ(counters.refused_forks, std::nullopt) << "an older kernel has no pids.events";
}

}  // namespace
}  // namespace casemate::local
