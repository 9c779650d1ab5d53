#include "casemate/backends/linux/control_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "casemate/sys/file.h"

namespace casemate::linux_backend {
namespace {

using testing::ElementsAre;

constexpr char kVersion1[] =
    "25 24 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "27 25 0:24 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "28 25 0:25 / /sys/fs/cgroup/with\\040space rw,relatime - cgroup cgroup rw,pids\n";
constexpr char kVersion2[] =
    "25 24 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kHybrid[] =
    "27 25 0:24 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "25 24 0:22 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n";

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

TEST(ControlGroupLayout, FindsTheHierarchiesOfVersion1) {
  const ControlGroupLayout layout = parse_layout(kVersion1, "");
  EXPECT_EQ(layout.memory, (ControllerPlace{"/sys/fs/cgroup/memory", false}));
  EXPECT_EQ(layout.pids, (ControllerPlace{"/sys/fs/cgroup/with space", false}));
  EXPECT_EQ(layout.cpu, (ControllerPlace{"/sys/fs/cgroup/cpu,cpuacct", false}));
  EXPECT_EQ(layout.accounting, layout.cpu);
}

TEST(ControlGroupLayout, TakesFromVersion2OnlyWhatItOffers) {
  const ControllerPlace place{"/sys/fs/cgroup", true};
  EXPECT_EQ(parse_layout(kVersion2, "cpuset cpu io memory pids"),
            (ControlGroupLayout{place, place, place, place}));
  EXPECT_EQ(parse_layout(kVersion2, "cpuset memory"),
            (ControlGroupLayout{place, std::nullopt, std::nullopt, place}));
}

TEST(ControlGroupLayout, AHybridsControllersAreWhereTheyAre) {
  const ControlGroupLayout layout = parse_layout(kHybrid, "");
  EXPECT_EQ(layout.memory, (ControllerPlace{"/sys/fs/cgroup/memory", false}));
  EXPECT_EQ(layout.pids, std::nullopt);
  EXPECT_EQ(layout.accounting, (ControllerPlace{"/sys/fs/cgroup/unified", true}));
}

TEST(ControlGroupLayout, OddLinesGiveNothing) {
  EXPECT_EQ(parse_layout("", ""), ControlGroupLayout{});
  EXPECT_EQ(parse_layout("a - \n - cgroup\n1 2 3 - cgroup c rw,memory\n\\", ""),
            ControlGroupLayout{});
}

TEST(ControlGroups, AVersion1SandboxIsBoundedInEachHierarchy) {
  EXPECT_THAT(
      written(sandbox_steps(parse_layout(kVersion1, ""), "ID", resources())),
      ElementsAre("/sys/fs/cgroup/memory/casemate : memory",
                  "/sys/fs/cgroup/memory/casemate/ID : memory",
                  "/sys/fs/cgroup/memory/casemate/ID/calls : memory",
                  "/sys/fs/cgroup/memory/casemate/ID/calls/memory.limit_in_bytes = 120 : memory",
                  "/sys/fs/cgroup/memory/casemate/ID/calls/memory.memsw.limit_in_bytes = 120",
                  "/sys/fs/cgroup/memory/casemate/ID/calls/memory.kmem.tcp.limit_in_bytes = 120",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls/cpu.cfs_period_us = 100000 : cpu",
                  "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls/cpu.cfs_quota_us = 150000 : cpu",
                  "/sys/fs/cgroup/with space/casemate : pids",
                  "/sys/fs/cgroup/with space/casemate/ID : pids",
                  "/sys/fs/cgroup/with space/casemate/ID/calls : pids"));
}

TEST(ControlGroups, AVersion2SandboxHandsEachControllerDown) {
  EXPECT_THAT(
      written(sandbox_steps(parse_layout(kVersion2, "cpu memory pids"), "ID", resources())),
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
  EXPECT_THAT(written(call_steps(parse_layout(kVersion2, "memory pids"), "ID", "abc", 128)),
              ElementsAre("/sys/fs/cgroup/casemate/ID/calls/call-abc : memory",
                          "/sys/fs/cgroup/casemate/ID/calls/call-abc/pids.max = 128 : pids"));
  EXPECT_EQ(call_directories(parse_layout(kVersion1, ""), "ID", "abc").size(), 3U);
  EXPECT_THAT(member_directories(parse_layout(kVersion1, ""), "ID", "abc"),
              ElementsAre("/sys/fs/cgroup/memory/casemate/ID/calls/call-abc",
                          "/sys/fs/cgroup/with space/casemate/ID/calls/call-abc",
                          "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls/call-abc",
                          "/sys/fs/cgroup/cpu,cpuacct/casemate/ID/calls"));
  EXPECT_THAT(call_directories(parse_layout(kVersion2, "memory pids"), "ID", "abc"),
              ElementsAre("/sys/fs/cgroup/casemate/ID/calls/call-abc"));
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
  const GroupCounters counters = read_counters(layout, "ID", "abc");
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
  const GroupCounters counters = read_counters(layout, "ID", "abc");
  EXPECT_EQ(counters.memory_kills, 1U);
  EXPECT_EQ(counters.peak_memory, 4096U);
  EXPECT_EQ(counters.cpu_nanoseconds, 1500U);
  EXPECT_EQ(counters.refused_forks, std::nullopt) << "an older kernel has no pids.events";
}

}  // namespace
}  // namespace casemate::linux_backend
