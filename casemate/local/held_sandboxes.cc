#include "casemate/local/held_sandboxes.h"

#include <poll.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "casemate/local/lease.h"
#include "casemate/sys/poll.h"

namespace casemate::local {

std::shared_ptr<const HeldSandbox> HeldSandboxes::find(const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  if (lease_holds(found->second->lease.get())) return found->second;
  by_digest_.erase(found);
  return nullptr;
}

void HeldSandboxes::put(const std::string& digest, std::shared_ptr<const HeldSandbox> sandbox) {
  const std::lock_guard lock(mutex_);
  by_digest_.insert_or_assign(digest, std::move(sandbox));
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

void HeldSandboxes::drop_dead() {
  const std::lock_guard lock(mutex_);
  std::vector<pollfd> leases;
  leases.reserve(by_digest_.size());
  for (const auto& [digest, held] : by_digest_) leases.push_back(lease_end(held->lease.get()));
  // All in one system call: every acquire of something new comes here.
  if (sys::poll_until(leases, sys::SteadyTime::clock::now()) == 0) return;
  std::size_t at = 0;
  std::erase_if(by_digest_, [&](const auto&) { return leases[at++].revents != 0; });
}

}  // namespace casemate::local
