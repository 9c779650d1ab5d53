#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace casemate::guest {

// Names in the directory that host and container share, and where it is inside. `kFirstLeaseName`
// is the host's listening socket until the container is there; the others are the agent's
// (keeper_messages.h).
inline constexpr char kSharedDirectory[] = "/casemate/host";
inline constexpr char kFirstLeaseName[] = "first.sock";
// Where host and container share none, that directory is the container's alone, and this is a FIFO,
// made by whoever comes first, which opens once the agent takes calls and leases.
inline constexpr char kReadyName[] = "ready";

// What the host gives to the container.
struct ContainerPlan {
  std::string work_dir;
  std::uint64_t open_files = 0;
  std::uint64_t cpu_seconds = 0;
  std::uint64_t keep_idle_ms = 0;
  // 0: the host listens for the first lease in the directory that they share. Else they share none,
  // and so long is waited for the first stream (container_stream.h) to take one.
  std::uint64_t first_lease_ms = 0;
  // The container has a kernel of its own and rights over it, by which calls have more of their own
  // (`AccountPlace::Config::own_kernel`). What kernel the host runs on (`kernel_of_this_process`):
  // on that one nothing begins. Empty: the container's kernel may be the host's.
  std::string host_kernel{};
  // There, of one call, and 0: no bound; and of each directory that a call has to itself.
  std::uint64_t processes = 0;
  std::uint64_t directory_bytes = 0;
};

// As words of the container's command line, behind the program.
inline std::vector<std::string> encode(const ContainerPlan& plan) {
  std::vector<std::string> words{"container",
                                 plan.work_dir,
                                 std::to_string(plan.open_files),
                                 std::to_string(plan.cpu_seconds),
                                 std::to_string(plan.keep_idle_ms),
                                 std::to_string(plan.first_lease_ms)};
  if (!plan.host_kernel.empty()) {
    words.insert(words.end(), {plan.host_kernel, std::to_string(plan.processes),
                               std::to_string(plan.directory_bytes)});
  }
  return words;
}

// The agent of a sandbox that an engine made: process 1 of a container without any right to make
// namespaces, but where its kernel is its own (account_place.h). Connects to the host that had it
// made, which is its first lease, says over it that it is ready or why not (`AgentReport`,
// agent.h), then does what every agent does. Ends, and with it every process of the container, when
// the last lease closed and the time that it wished to be kept went by; so also when the host was
// gone before it began. Returns the exit status.
int run_container_agent(const ContainerPlan& plan) noexcept;

}  // namespace casemate::guest
