#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "casemate/backends/docker/container_stream.h"
#include "casemate/backends/docker/record.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::docker {

// A sandbox with the lease that keeps it alive.
struct HeldContainer {
  Record record;
  // Of the container.
  std::string id;
  // The host's own of it; shared with it, unless it is reached by a stream.
  sys::UniqueFd directory;
  // One of both keeps it alive.
  sys::UniqueFd lease;
  std::shared_ptr<ContainerStream> stream;
  // Number on this host of its first process; 0: not known.
  int process = 0;
  // What the lease was told last; -1: nothing.
  mutable std::atomic<std::chrono::milliseconds::rep> keep_idle{-1};

  // Whether the sandbox is alive, a moment ago.
  bool holds() const noexcept;
};

// As callers know a sandbox: the first 24 digits of its container's id.
std::string sandbox_id(const std::string& container_id);

// Has the sandbox wait that long, when this lease is the last to close. One message where it is
// another than before. False: it has to be taken anew for that, being a stream's.
bool change_keep_idle(const HeldContainer& held, std::chrono::milliseconds keep_idle) noexcept;

// The leases of this process by the digest of key and kind. Thread-safe.
class HeldContainers {
 public:
  std::shared_ptr<const HeldContainer> find(const std::string& digest);
  void put(const std::string& digest, std::shared_ptr<const HeldContainer> held);
  // Takes out whatever has that container's id.
  std::shared_ptr<const HeldContainer> take(const std::string& container_id);
  void drop_dead();

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const HeldContainer>> by_digest_;
};

}  // namespace casemate::docker
