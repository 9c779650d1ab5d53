#include "casemate/local/group_detection.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "casemate/sys/file.h"

namespace casemate::local {
namespace {

using testing::HasSubstr;

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
constexpr char kEverything[] = "cpuset cpu io memory pids";

// Everything that is not listed cannot be written.
LookAtGroup only(std::map<std::string, GroupView> groups) {
  return [groups = std::move(groups)](const std::string& directory) {
    const auto found = groups.find(directory);
    return found == groups.end() ? GroupView{} : found->second;
  };
}

GroupView root_of(std::string offered) { return {.writable = true, .offered = std::move(offered)}; }

LookAtGroup everywhere() {
  return [](const std::string&) { return root_of(kEverything); };
}

TEST(GroupDetection, FindsTheHierarchiesOfVersion1) {
  const auto [layout, missing] = parse_groups(kVersion1, "", everywhere());
  EXPECT_EQ(layout.memory, (ControllerPlace{"/sys/fs/cgroup/memory", false}));
  EXPECT_EQ(layout.pids, (ControllerPlace{"/sys/fs/cgroup/with space", false}));
  EXPECT_EQ(layout.cpu, (ControllerPlace{"/sys/fs/cgroup/cpu,cpuacct", false}));
  EXPECT_EQ(layout.accounting, layout.cpu);
  EXPECT_TRUE(missing.empty());
}

TEST(GroupDetection, TakesFromVersion2OnlyWhatItOffers) {
  const ControllerPlace place{"/sys/fs/cgroup", true};
  EXPECT_EQ(parse_groups(kVersion2, "0::/user.slice\n", everywhere()).layout,
            (ControlGroupLayout{place, place, place, place}));
  const auto some =
      parse_groups(kVersion2, "0::/\n", only({{"/sys/fs/cgroup", root_of("cpuset memory")}}));
  EXPECT_EQ(some.layout, (ControlGroupLayout{place, std::nullopt, std::nullopt, place}));
  EXPECT_THAT(some.missing.at(Limit::pids), HasSubstr("/sys/fs/cgroup does not offer pids"));
  EXPECT_EQ(some.missing.size(), 2U);
}

TEST(GroupDetection, AHybridsControllersAreWhereTheyAre) {
  const auto [layout, missing] = parse_groups(kHybrid, "3:memory:/a\n0::/b\n",
                                              only({{"/sys/fs/cgroup/memory", {.writable = true}},
                                                    {"/sys/fs/cgroup/unified", root_of("")}}));
  EXPECT_EQ(layout.memory, (ControllerPlace{"/sys/fs/cgroup/memory", false}));
  EXPECT_EQ(layout.pids, std::nullopt);
  EXPECT_EQ(layout.accounting, (ControllerPlace{"/sys/fs/cgroup/unified", true}));
  EXPECT_TRUE(missing.contains(Limit::pids) && missing.contains(Limit::cpu));
}

constexpr char kService[] = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service";

// What systemd gives an ordinary user: the group of its user manager and all below it.
TEST(GroupDetection, AnOrdinaryUserTakesTheHighestGroupThatWasDelegated) {
  const std::string own =
      "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope\n";
  const ControllerPlace place{kService, true};
  const auto [layout, missing] =
      parse_groups(kVersion2, own,
                   only({{kService, root_of("cpu memory pids")},
                         {std::string(kService) + "/app.slice", root_of("memory pids")},
                         {std::string(kService) + "/app.slice/run-7.scope",
                          {.writable = true, .occupied = true, .offered = "memory pids"}}}));
  EXPECT_EQ(layout, (ControlGroupLayout{place, place, place, place}));
  EXPECT_TRUE(missing.empty());
}

TEST(GroupDetection, NothingThatWasDelegatedElsewhereIsTaken) {
  const auto [layout, missing] =
      parse_groups(kVersion2, "0::/user.slice/user-1000.slice/session-2.scope\n",
                   only({{kService, root_of("cpu memory pids")}}));
  EXPECT_EQ(layout, ControlGroupLayout{});
  EXPECT_THAT(missing.at(Limit::memory), HasSubstr("session-2.scope or above it"));
}

// In a container with a cgroup namespace the root that is seen is a group like others.
TEST(GroupDetection, AGroupWithProcessesOfItsOwnBoundsNothingButCounts) {
  const auto [layout, missing] = parse_groups(
      kVersion2, "0::/\n",
      only({{"/sys/fs/cgroup", {.writable = true, .occupied = true, .offered = kEverything}}}));
  const ControllerPlace place{"/sys/fs/cgroup", true};
  EXPECT_EQ(layout, (ControlGroupLayout{{}, {}, {}, place}));
  EXPECT_THAT(missing.at(Limit::memory), HasSubstr("has processes of its own"));
}

TEST(GroupDetection, AContainersMountsShowItsOwnGroupAsTheRoot) {
  const auto [layout, missing] = parse_groups(
      "27 25 0:24 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
      "4:memory:/docker/abc/inner\n", only({{"/sys/fs/cgroup/memory/inner", {.writable = true}}}));
  EXPECT_EQ(layout.memory, (ControllerPlace{"/sys/fs/cgroup/memory/inner", false}));
}

TEST(GroupDetection, AGroupOutsideOfWhatIsShownGivesTheRoot) {
  const auto [layout, missing] =
      parse_groups("27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                   "4:memory:/../../x\n", everywhere());
  EXPECT_EQ(layout.memory, (ControllerPlace{"/sys/fs/cgroup/memory", false}));
}

TEST(GroupDetection, OddLinesGiveNothing) {
  EXPECT_EQ(parse_groups("", "", everywhere()).layout, ControlGroupLayout{});
  EXPECT_EQ(
      parse_groups("a - \n - cgroup\n1 2 3 - cgroup c rw,memory\n\\", ":\n::\n7\n", everywhere())
          .layout,
      ControlGroupLayout{});
}

TEST(GroupDetection, AHostMayLeaveThemOut) {
  EXPECT_EQ(no_groups().layout, ControlGroupLayout{});
  EXPECT_THAT(no_groups().missing.at(Limit::memory), HasSubstr("options"));
}

// The machine of kVersion1, covered.
LookAtGroup nothing_there() {
  return [](const std::string&) { return GroupView{.there = false}; };
}

TEST(GroupRemedy, OfWhatIsCoveredTakesTheCoverOff) {
  const std::string mounts =
      std::string(kVersion1) + "60 25 0:40 / /sys/fs/cgroup rw - tmpfs none rw\n";
  const Remedy remedy = remedy_for_groups(mounts, "", nothing_there(), 0);
  EXPECT_EQ(remedy.command, "umount /sys/fs/cgroup");
  EXPECT_THAT(remedy.hint, HasSubstr("as root: umount"));
  EXPECT_THAT(parse_groups(mounts, "", nothing_there()).missing.at(Limit::memory),
              HasSubstr("something is mounted over /sys/fs/cgroup/memory"));
  // The mounts that were there first hide nothing.
  EXPECT_EQ(remedy_for_groups(std::string(kVersion2) + "60 25 0:40 / /sys/fs rw - tmpfs none rw\n",
                              "0::/\n", nothing_there(), 0)
                .command,
            "umount /sys/fs");
}

TEST(GroupRemedy, WhereNoneIsMountedMountsWhatTheKernelHas) {
  EXPECT_EQ(remedy_for_groups("", "0::/\n", everywhere(), 0).command,
            "mount -t cgroup2 none /sys/fs/cgroup");
  EXPECT_EQ(
      remedy_for_groups("", "4:memory:/a\n3:cpuset:/\n2:cpu,cpuacct:/\n0::/\n", everywhere(), 0)
          .command,
      "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory "
      "/sys/fs/cgroup/cpu,cpuacct && mount -t cgroup -o memory none /sys/fs/cgroup/memory && "
      "mount -t cgroup -o cpu,cpuacct none /sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(remedy_for_groups("", "", everywhere(), 0), Remedy{}) << "a kernel without";
}

TEST(GroupRemedy, OfWhatCanOnlyBeReadDependsOnWhoAsks) {
  const LookAtGroup closed = only({});
  EXPECT_EQ(remedy_for_groups(kVersion2, "0::/\n", closed, 0).command,
            "mount -o remount,bind,rw /sys/fs/cgroup");
  const Remedy remedy = remedy_for_groups(kVersion2, "0::/\n", closed, 1000);
  EXPECT_EQ(remedy.command, "");
  EXPECT_THAT(remedy.hint, HasSubstr("Delegate=yes"));
  EXPECT_EQ(remedy_for_groups(kVersion2, "0::/\n", everywhere(), 0), Remedy{});
}

// Among the real ones, in a group of the test's own.
TEST(GroupRemedy, AGroupThatIsOccupiedIsEmptiedByTheCommand) {
  const std::string tree = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0
                               ? "/sys/fs/cgroup/unified"
                               : "/sys/fs/cgroup";
  if (geteuid() != 0) GTEST_SKIP() << "needs root, who may make a group and leave his own";
  if (access((tree + "/cgroup.subtree_control").c_str(), W_OK) != 0) {
    GTEST_SKIP() << "no control groups of version 2 are mounted here";
  }
  const std::string group = tree + "/casemate-test-" + std::to_string(getpid());
  ASSERT_EQ(mkdir(group.c_str(), 0755), 0);
  const pid_t resident = fork();
  if (resident == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause();
    _exit(0);
  }
  sys::write_control_file_at(AT_FDCWD, (group + "/cgroup.procs").c_str(), std::to_string(resident));
  const std::string mounts = "25 24 0:22 / " + tree + " rw - cgroup2 cgroup2 rw\n";
  const LookAtGroup look = [&](const std::string& directory) {
    if (directory == tree) return GroupView{};
    GroupView view = look_at_group(directory);
    view.offered = kEverything;
    return view;
  };
  const std::string own = "0::" + group.substr(tree.size()) + "\n";
  const Remedy remedy = remedy_for_groups(mounts, own, look, 0);
  EXPECT_THAT(remedy.command, HasSubstr("mkdir -p " + group));
  EXPECT_FALSE(parse_groups(mounts, own, look).missing.empty());
  EXPECT_EQ(std::system(remedy.command.c_str()), 0);  // NOLINT(cert-env33-c): it is for a shell
  EXPECT_TRUE(parse_groups(mounts, own, look).missing.empty());
  EXPECT_EQ(remedy_for_groups(mounts, own, look, 0), Remedy{});
  kill(resident, SIGKILL);
  waitpid(resident, nullptr, 0);
  EXPECT_EQ(rmdir((group + "/casemate-others").c_str()), 0);
  EXPECT_EQ(rmdir(group.c_str()), 0);
}

}  // namespace
}  // namespace casemate::local
