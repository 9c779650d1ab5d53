#include "casemate/local/held_sandboxes.h"

#include <utility>

#include "casemate/local/lease.h"

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
  std::erase_if(by_digest_,
                [](const auto& entry) { return !lease_holds(entry.second->lease.get()); });
}

}  // namespace casemate::local
