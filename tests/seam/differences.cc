#include "tests/seam/differences.h"

#include <utility>

namespace casemate::seam {
namespace {

// What holds for containers of an engine, whichever it is.
std::vector<Difference> of_engine(const std::string& engine) {
  return {
      {engine, "cpu_seconds", "", "refused: SandboxLimitNotEnforceable\n",
       "the engine bounds a container's share of processors, not the seconds of a call"},
      {engine, "user", "\nuser\n", "\nthe user has no name\n",
       "each call has a user id of its own, which no image has a name for"},
      {engine, "user", "other groups 0", "other groups 1",
       "the user ids of a sandbox's calls share a group, whose /workspace and /home/user are"},
      {engine, "proc", "write hostname EACCES", "write hostname EROFS",
       "the engine mounts /proc/sys read-only; linux leaves it to the rights of the user "
       "namespace"},
      {engine, "proc", "device EACCES", "device EPERM",
       "no right to make devices at all; linux has it filtered by the mount"},
      {engine, "proc", "write in /dev EROFS", "write in /dev EACCES",
       "the engine's /dev is a tmpfs of root's; linux mounts its own read-only"},
      {engine, "proc", "write in /sys ENOENT", "write in /sys EROFS",
       "the engine shows /sys, read-only; linux has none"},
      {engine, "proc", "processes ['casemate-call', 'python3']",
       "processes ['casemate-agent', 'casemate-call', 'python3']",
       "calls share the container's process namespace; linux makes one for each call"},
  };
}

// gVisor, by what its own kernel does otherwise.
std::vector<Difference> of_runsc(const std::string& runsc) {
  return {
      {runsc, kEveryScenario, "limits_not_held: []",
       "limits_not_held: [\"memory\",\"pids\",\"disk\"]",
       "the host's groups see one process, gVisor's kernel, and not what runs in it"},
      {runsc, "cpu_seconds", "", "refused: SandboxLimitNotEnforceable\n",
       "gVisor counts no processor seconds of a call"},
      {runsc, "user", "\nuser\n", "\nthe user has no name\n",
       "each call has a user id of its own, which no image has a name for"},
      {runsc, "user", "other groups 0", "other groups 1",
       "the user ids of a sandbox's calls share a group, whose /workspace and /home/user are"},
      {runsc, "user", "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\n", "",
       "gVisor's /proc/self/status has no such lines"},
      {runsc, "proc", "memory of 1 EACCES\nenvironment of 1 EACCES",
       "memory of 1 ENOENT\nenvironment of 1 ENOENT",
       "gVisor shows a call's first process as an empty directory"},
      {runsc, "proc", "device EACCES", "device done",
       "gVisor makes a node for anybody; its devices are its own, none of them the host's"},
      {runsc, "proc", "a way out ENETUNREACH", "a way out EHOSTUNREACH",
       "gVisor's network says it in other words"},
      {runsc, "proc",
       "write in / EROFS\nwrite in /usr EROFS\nwrite in /etc EROFS\nwrite in /dev EROFS\n"
       "write in /proc ENOENT\nwrite in /sys ENOENT\n",
       "write in / EACCES\nwrite in /usr EACCES\nwrite in /etc EACCES\nwrite in /dev EACCES\n"
       "write in /proc EACCES\nwrite in /sys EACCES\n",
       "gVisor asks for the user's rights first, then whether it is read-only"},
      {runsc, "proc", "processes ['casemate-call', 'python3']", "processes ['python3']",
       "the same: its name cannot be read"},
  };
}

}  // namespace

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all = [] {
    std::vector<Difference> list = of_engine("docker");
    for (const std::vector<Difference>& more :
         {of_engine("podman"), of_runsc("oci_runsc"), of_runsc("docker_runsc")}) {
      list.insert(list.end(), more.begin(), more.end());
    }
    list.push_back({"podman", kEveryScenario, "limits_not_held: []", "limits_not_held: [\"disk\"]",
                    "Podman bounds the bytes of a tmpfs and not the number of its files"});
    list.push_back({"microvm", "cpu_seconds", "", "refused: SandboxLimitNotEnforceable\n",
                    "a machine bounds a sandbox's share of processors, not the seconds of a call"});
    list.push_back({"plain", kEveryScenario, "limits_not_held: []",
                    "limits_not_held: [\"memory\",\"pids\",\"disk\",\"cpu\"]",
                    "plain processes, which nothing bounds"});
    return list;
  }();
  return all;
}

std::string expected_of(std::string_view backend, std::string_view scenario,
                        std::string transcript_of_linux) {
  std::string expected = std::move(transcript_of_linux);
  for (const Difference& difference : differences()) {
    if (difference.backend != backend) continue;
    if (difference.scenario != scenario && difference.scenario != kEveryScenario) continue;
    if (difference.of_linux.empty()) return difference.instead;
    const std::size_t found = expected.find(difference.of_linux);
    if (found == std::string::npos) {
      return "a listed difference no longer exists: " + difference.reason + "\n" + expected;
    }
    expected.replace(found, difference.of_linux.size(), difference.instead);
  }
  return expected;
}

}  // namespace casemate::seam
