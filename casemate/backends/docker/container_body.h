#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/backends/docker/engine.h"
#include "casemate/core/spec.h"

namespace casemate::docker {

// How the bound on disk is shared out: an engine gives no two places one file system that is
// bounded. The work directory has the most.
struct DiskShare {
  std::string path;
  std::uint64_t bytes;
  std::uint64_t inodes;
  bool executable;
};
// With a kernel of its own, /tmp and /dev/shm are each call's own and not among them.
enum class ContainerKernel { shared, own };
std::vector<DiskShare> disk_shares(const SandboxSpec& spec, ContainerKernel kernel);

struct ContainerWish {
  const SandboxSpec& spec;
  const ImageFacts& image;
  const EngineFacts& engine;
  const std::map<std::string, std::string>& labels;
  // Of the directory on the host that is shared with it.
  std::string shared_path;
  // Of the engine's; empty: its default.
  std::string runtime;
  // 0: that directory is shared. Else nothing is, and so long the container waits for a stream.
  std::chrono::milliseconds first_lease{0};
  // Not empty: containers of that runtime were seen to have a kernel of their own. Then the guest
  // program gets the right to make namespaces and mounts, which it must not have on the kernel of
  // the host, which this names (`ContainerPlan::host_kernel`).
  std::string host_kernel{};
};

// The JSON of `POST /containers/create`: no network, a root that cannot be written, no capability
// but those that the guest program needs to give each call a user (and, on a kernel of its own,
// namespaces) of its own, every bound of the
// spec that the engine holds, and the engine's own system call filter and mandatory access control
// as they are.
std::string container_body(const ContainerWish& wish);

}  // namespace casemate::docker
