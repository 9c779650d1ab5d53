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
std::vector<DiskShare> disk_shares(const SandboxSpec& spec);

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
};

// The JSON of `POST /containers/create`: no network, a root that cannot be written, no capability
// but those that the guest program needs to give each call a user of its own, every bound of the
// spec that the engine holds, and the engine's own system call filter and mandatory access control
// as they are.
std::string container_body(const ContainerWish& wish);

}  // namespace casemate::docker
