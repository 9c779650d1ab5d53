#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "casemate/backends/linux/state_directory.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::linux_backend {

// A sandbox with the lease that keeps it alive.
struct HeldSandbox {
  Record record;
  // Its state directory, wherever it is moved to.
  sys::UniqueFd directory;
  sys::UniqueFd lease;
};

// The leases of this process, one for each live identity that it acquired: kept until the sandbox
// is disposed or found dead, or this table goes. A handle shares its entry, so a sandbox whose
// handle outlives the table lives as long as the handle.
//
// Thread-safe. In a forked child of the application the table and its leases are there too; both
// processes hold them then.
class HeldSandboxes {
 public:
  // The sandbox held under that identity, alive a moment ago; null when there is none. Costs one
  // system call. A dead one is forgotten.
  std::shared_ptr<const HeldSandbox> find(const std::string& digest);

  // Replaces what is there.
  void put(const std::string& digest, std::shared_ptr<const HeldSandbox> sandbox);

  // Takes the entry out if it is the sandbox of that id, else null. As long as the caller keeps it,
  // the lease does not end the sandbox.
  std::shared_ptr<const HeldSandbox> take(const std::string& digest, const std::string& id);

  // Forgets every dead one: disposed by another process, or killed.
  void drop_dead();

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const HeldSandbox>> by_digest_;
};

}  // namespace casemate::linux_backend
