#include "casemate/local/held_sandboxes.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "casemate/local/lease.h"

namespace casemate::local {

void HeldSandboxes::watch(const std::string& digest, Entry& entry) {
  entry.number = ++last_number_;
  // An agent says nothing on a lease that it has granted: whatever comes is its end.
  ends_->add(entry.sandbox->lease.get(), entry.number, sys::Trigger::level);
  digest_by_number_.emplace(entry.number, digest);
}

// Under the lock, as the next.
std::shared_ptr<const HeldSandbox> HeldSandboxes::take_out(Entries::iterator found) {
  std::shared_ptr<const HeldSandbox> taken = std::move(found->second.sandbox);
  if (ends_ && owner_.is_current()) ends_->remove(taken->lease.get());
  digest_by_number_.erase(found->second.number);
  by_digest_.erase(found);
  return taken;
}

std::shared_ptr<const HeldSandbox> HeldSandboxes::find(const std::string& digest) {
  // Destroyed, last, without the lock.
  std::shared_ptr<const HeldSandbox> dead;
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) return nullptr;
  if (lease_holds(found->second.sandbox->lease.get())) return found->second.sandbox;
  dead = take_out(found);
  return nullptr;
}

void HeldSandboxes::put(const std::string& digest, std::shared_ptr<const HeldSandbox> sandbox) {
  std::shared_ptr<const HeldSandbox> replaced;
  const std::lock_guard lock(mutex_);
  if (const auto found = by_digest_.find(digest); found != by_digest_.end()) {
    replaced = take_out(found);
  }
  begin_watching();
  Entry entry{.sandbox = std::move(sandbox)};
  watch(digest, entry);
  by_digest_.emplace(digest, std::move(entry));
}

void HeldSandboxes::begin_watching() {
  if (ends_ && owner_.is_current()) return;
  ends_.reset();
  digest_by_number_.clear();
  ends_.emplace();
  owner_ = {};
  try {
    for (auto& [digest, entry] : by_digest_) watch(digest, entry);
  } catch (...) {
    ends_.reset();  // the next time begins again
    throw;
  }
}

std::shared_ptr<const HeldSandbox> HeldSandboxes::take(const std::string& digest,
                                                       const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end() || found->second.sandbox->record.id != id) return nullptr;
  return take_out(found);
}

std::string HeldSandboxes::name_of(std::string_view id) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : by_digest_) {
    if (entry.sandbox->record.id == id) return name;
  }
  return {};
}

void HeldSandboxes::drop_dead() {
  // Destroyed, last, without the lock.
  std::vector<std::shared_ptr<const HeldSandbox>> dead;
  const std::lock_guard lock(mutex_);
  if (by_digest_.empty()) return;
  begin_watching();
  std::array<std::uint64_t, 16> numbers{};
  while (true) {
    const std::size_t before = dead.size();
    const std::size_t count = ends_->look(numbers);
    for (std::size_t i = 0; i < count; ++i) {
      const auto digest = digest_by_number_.find(numbers[i]);
      if (digest == digest_by_number_.end()) continue;
      dead.push_back(take_out(by_digest_.find(digest->second)));
    }
    if (dead.size() == before) return;
  }
}

}  // namespace casemate::local
