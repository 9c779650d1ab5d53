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
};

// As words of the container's command line, behind the program.
inline std::vector<std::string> encode(const ContainerPlan& plan) {
  return {"container",
          plan.work_dir,
          std::to_string(plan.open_files),
          std::to_string(plan.cpu_seconds),
          std::to_string(plan.keep_idle_ms),
          std::to_string(plan.first_lease_ms)};
}

// The agent of a sandbox that an engine made: process 1 of a container without any right to make
// namespaces (account_place.h). Connects to the host that had it made, which is its first lease,
// says over it that it is ready or why not (`AgentReport`, agent.h), then does what every agent
// does. Ends, and with it every process of the container, when the last lease closed and the time
// that it wished to be kept went by; so also when the host was gone before it began. Returns the
// exit status.
int run_container_agent(const ContainerPlan& plan) noexcept;

}  // namespace casemate::guest
