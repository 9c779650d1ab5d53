#include "casemate/backends/docker/lease.h"

#include <algorithm>
#include <utility>

#include "casemate/local/lease.h"

namespace casemate::docker {
namespace {

constexpr std::size_t kIdDigits = 24;

}  // namespace

std::string sandbox_id(const std::string& container_id) {
  return container_id.substr(0, kIdDigits);
}

bool change_keep_idle(const HeldContainer& held, std::chrono::milliseconds keep_idle) noexcept {
  if (held.stream) return held.keep_idle == keep_idle.count();
  if (held.keep_idle.exchange(keep_idle.count()) == keep_idle.count()) return true;
  local::change_keep_idle(held.lease.get(), keep_idle);
  return true;
}

bool HeldContainer::holds() const noexcept {
  return stream ? stream->alive() : local::lease_holds(lease.get());
}

std::shared_ptr<const HeldContainer> HeldContainers::find(const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  if (found->second->holds()) return found->second;
  by_digest_.erase(found);
  return nullptr;
}

void HeldContainers::put(const std::string& digest, std::shared_ptr<const HeldContainer> held) {
  const std::lock_guard lock(mutex_);
  by_digest_[digest] = std::move(held);
}

std::shared_ptr<const HeldContainer> HeldContainers::take(const std::string& container_id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(by_digest_.begin(), by_digest_.end(), [&](const auto& each) {
    return each.second->id == container_id;
  });
  if (found == by_digest_.end()) return nullptr;
  std::shared_ptr<const HeldContainer> held = std::move(found->second);
  by_digest_.erase(found);
  return held;
}

void HeldContainers::drop_dead() {
  const std::lock_guard lock(mutex_);
  std::erase_if(by_digest_, [](const auto& each) { return !each.second->holds(); });
}

}  // namespace casemate::docker
