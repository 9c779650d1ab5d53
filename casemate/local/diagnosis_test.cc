#include "casemate/local/diagnosis.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace casemate::local {
namespace {

constexpr char kPlain[] =
    "22 28 0:20 / /proc rw,nosuid - proc proc rw\n"
    "28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "36 22 0:32 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n";

TEST(HostFacts, PartsOfProcAreCoveredByMountsThatTheKernelHasNoPlaceFor) {
  EXPECT_EQ(covered_parts(kPlain), std::vector<std::string>{});
  EXPECT_EQ(
      covered_parts(std::string(kPlain) + "40 22 0:9 / /proc/scsi ro - tmpfs tmpfs ro\n"
                                          "41 22 0:5 /null /proc/kcore rw - tmpfs tmpfs rw\n"),
      (std::vector<std::string>{"/proc/kcore", "/proc/scsi"}))
      << "in the order in which they come off";
  EXPECT_EQ(covered_parts("40 22 0:9 / /procs/scsi ro - tmpfs tmpfs ro\n"),
            std::vector<std::string>{});
  EXPECT_EQ(covered_parts("1\n\n1 2 3\n1 2 3 4\n"), std::vector<std::string>{});
}

TEST(HostFacts, AChrootIsARootThatIsNoMount) {
  EXPECT_FALSE(is_chrooted(kPlain));
  EXPECT_TRUE(is_chrooted("22 28 0:20 / /proc rw,nosuid - proc proc rw\n"));
  EXPECT_FALSE(is_chrooted("")) << "not to be told";
}

TEST(Remedies, OfABoundOnNamespacesNameTheKindsThatAreOff) {
  HostFacts facts;
  facts.settings = {{"user.max_user_namespaces", "0"}, {"user.max_net_namespaces", "0"}};
  EXPECT_EQ(remedy_for("making a user namespace: No space", ENOSPC, facts).command,
            "sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000");
  facts.settings["user.max_user_namespaces"] = "9";
  EXPECT_EQ(remedy_for("cloning a process: No space", ENOSPC, facts).command,
            "sysctl -w user.max_net_namespaces=15000");
  facts.settings["user.max_net_namespaces"] = "9";
  EXPECT_EQ(remedy_for("cloning a process: No space", ENOSPC, facts).command,
            "sysctl -w user.max_user_namespaces=100000");
  EXPECT_EQ(remedy_for("making the directory x: No space", ENOSPC, facts).command, "")
      << "of a disk";
}

TEST(Remedies, OfTooManyProcessesNameTheUsersLimit) {
  HostFacts facts;
  facts.most_processes = "20";
  for (const char* step : {"cloning a process: x", "starting the keeper: x"}) {
    EXPECT_NE(remedy_for(step, EAGAIN, facts).hint.find("ulimit -u is 20"), std::string::npos);
  }
  EXPECT_EQ(remedy_for("making a socket: x", EAGAIN, facts).hint, "");
}

TEST(Remedies, OfARefusedUserNamespaceNameWhoRefusesIt) {
  HostFacts facts;
  facts.settings["kernel.apparmor_restrict_unprivileged_userns"] = "1";
  for (const char* step : {"making a user namespace: x", "writing /proc/self/uid_map: x",
                           "making a mount namespace: x", "raising the loopback interface: x",
                           "opening a socket for the loopback interface: x"}) {
    for (const int error : {EPERM, EACCES}) {
      EXPECT_EQ(remedy_for(step, error, facts).command,
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
          << step;
    }
  }
  facts.settings["kernel.apparmor_restrict_unprivileged_userns"] = "0";
  facts.settings["kernel.unprivileged_userns_clone"] = "0";
  EXPECT_EQ(remedy_for("making a user namespace: x", EPERM, facts).command,
            "sysctl -w kernel.unprivileged_userns_clone=1");
  facts.settings["kernel.unprivileged_userns_clone"] = "1";
  facts.chrooted = true;
  EXPECT_NE(remedy_for("making a user namespace: x", EPERM, facts).hint.find("systemd-nspawn"),
            std::string::npos);
  facts.chrooted = false;
  facts.container = "docker";
  EXPECT_EQ(remedy_for("making a user namespace: x", EPERM, facts).command, "")
      << "the mark of an engine that filters nothing";
  facts.container = "";
  facts.filtered = true;
  EXPECT_NE(remedy_for("making a user namespace: x", EPERM, facts).hint.find("SystemCallFilter"),
            std::string::npos);
  facts.filtered = false;
  EXPECT_NE(remedy_for("cloning a process: x", ENOSYS, facts).hint.find("5.12"), std::string::npos);
  EXPECT_NE(remedy_for("cloning a process: x", EPERM, facts).hint.find("security module"),
            std::string::npos);
}

TEST(Remedies, InAContainerNameItsEnginesOptions) {
  HostFacts facts;
  facts.container = "docker";
  facts.covered = {"/proc/kcore"};
  const std::string hint = remedy_for("creating a proc: x", EPERM, facts).hint;
  EXPECT_NE(hint.find("docker run --security-opt systempaths=unconfined,"), std::string::npos)
      << hint;
  facts.filtered = true;
  facts.profile = "docker-default (enforce)";
  const Remedy remedy = remedy_for("making a user namespace: x", EPERM, facts);
  EXPECT_EQ(remedy.command, "") << "only its owner knows the line that starts it";
  EXPECT_NE(remedy.hint.find("docker run --security-opt systempaths=unconfined --security-opt "
                             "seccomp=unconfined --security-opt apparmor=unconfined,"),
            std::string::npos)
      << remedy.hint;
  EXPECT_NE(remedy.hint.find("unmask=ALL"), std::string::npos);
  facts = {};
  facts.container = "podman";
  facts.covered = {"/proc/sys"};
  EXPECT_TRUE(remedy_for("mounting a proc: x", EPERM, facts)
                  .hint.ends_with("or podman run --security-opt unmask=ALL"));
}

TEST(Remedies, OfAFilterThatRefusesAnythingElseSpeakOfNoNamespaces) {
  HostFacts facts;
  for (const char* step : {"listen: x", "timerfd_create: x", "starting a thread: x",
                           "duplicating a descriptor: x", "starting the keeper: x"}) {
    EXPECT_EQ(remedy_for(step, EPERM, facts), Remedy{}) << "nobody filters";
  }
  facts.filtered = true;
  facts.settings["kernel.apparmor_restrict_unprivileged_userns"] = "1";
  EXPECT_NE(remedy_for("listen: x", ENOSYS, facts).hint.find("SystemCallFilter"),
            std::string::npos);
  facts.container = "docker";
  for (const char* step : {"listen: x", "timerfd_create: x", "starting a thread: x",
                           "duplicating a descriptor: x", "starting the keeper: x"}) {
    const std::string hint = remedy_for(step, EPERM, facts).hint;
    EXPECT_NE(hint.find("docker run --security-opt seccomp=unconfined,"), std::string::npos)
        << hint;
    EXPECT_EQ(hint.find("namespace"), std::string::npos) << hint;
    EXPECT_EQ(hint.find("systempaths"), std::string::npos) << hint;
  }
}

TEST(Remedies, OfACoveredProcOutsideOfContainersTakeTheCoversOff) {
  HostFacts facts;
  facts.covered = {"/proc/kcore", "/proc/scsi"};
  EXPECT_EQ(remedy_for("creating a proc: x", EPERM, facts).command,
            "umount /proc/kcore /proc/scsi");
  facts.covered = {};
  EXPECT_EQ(remedy_for("creating a proc: x", EPERM, facts).command, "");
}

TEST(Remedies, OfAMissingProcAndOfMemoryThatRunsNothing) {
  HostFacts facts;
  facts.settings["vm.memfd_noexec"] = "2";
  EXPECT_EQ(remedy_for("making a memory file: x", EACCES, facts).command,
            "sysctl -w vm.memfd_noexec=1");
  facts.proc = false;
  EXPECT_EQ(remedy_for("making a memory file: x", EACCES, facts).command,
            "mount -t proc proc /proc");
}

TEST(Remedies, OfWhatIsNoLackOfTheMachineAreNone) {
  EXPECT_EQ(remedy_for("writing record.json: x", ENOSPC, {}), Remedy{});
  EXPECT_EQ(remedy_for("making a socket: x", EAGAIN, {}), Remedy{});
}

}  // namespace
}  // namespace casemate::local
