#include "casemate/local/held_sandboxes.h"

#include <poll.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "casemate/local/lease.h"
#include "casemate/sys/poll.h"

namespace casemate::local {
namespace {

// Below every limit of open files that a process can have so many sandboxes with.
constexpr std::size_t kLeasesAtOnce = 128;

}  // namespace

std::shared_ptr<const HeldSandbox> HeldSandboxes::find(const std::string& digest) {
  // Destroyed, last, without the lock.
  std::shared_ptr<const HeldSandbox> dead;
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  if (lease_holds(found->second->lease.get())) return found->second;
  dead = std::move(found->second);
  by_digest_.erase(found);
  return nullptr;
}

void HeldSandboxes::put(const std::string& digest, std::shared_ptr<const HeldSandbox> sandbox) {
  std::shared_ptr<const HeldSandbox> replaced;
  const std::lock_guard lock(mutex_);
  replaced = std::exchange(by_digest_[digest], std::move(sandbox));
}

std::shared_ptr<const HeldSandbox> HeldSandboxes::take(const std::string& digest,
                                                       const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end() || found->second->record.id != id) return nullptr;
  std::shared_ptr<const HeldSandbox> taken = std::move(found->second);
  by_digest_.erase(found);
  return taken;
}

std::string HeldSandboxes::name_of(std::string_view id) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, sandbox] : by_digest_) {
    if (sandbox->record.id == id) return name;
  }
  return {};
}

void HeldSandboxes::drop_dead() {
  // Destroyed, last, without the lock.
  std::vector<std::shared_ptr<const HeldSandbox>> dead;
  const std::lock_guard lock(mutex_);
  for (auto at = by_digest_.begin(); at != by_digest_.end();) {
    // Many in one system call: every acquire of something new comes here.
    std::vector<pollfd> leases;
    auto end = at;
    for (; end != by_digest_.end() && leases.size() < kLeasesAtOnce; ++end) {
      leases.push_back(lease_end(end->second->lease.get()));
    }
    const bool all_live = sys::poll_until(leases, sys::SteadyTime::clock::now()) == 0;
    for (const pollfd& lease : leases) {
      if (all_live || lease.revents == 0) {
        ++at;
        continue;
      }
      dead.push_back(std::move(at->second));
      at = by_digest_.erase(at);
    }
  }
}

}  // namespace casemate::local
