#include "casemate/mcp/handles.h"

#include <algorithm>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/sys/thread.h"

namespace casemate::mcp {

using Clock = std::chrono::steady_clock;

HandleRegistry::HandleRegistry(std::size_t max_handles, std::chrono::milliseconds idle)
    : max_handles_(max_handles), idle_(idle) {}

HandleRegistry::~HandleRegistry() { clear(); }

std::optional<std::string> HandleRegistry::add(const std::shared_ptr<Conversation>& conversation,
                                               std::string_view identity, Share share) {
  std::string handle = random_hex(16);
  const std::lock_guard lock(mutex_);
  const auto of_caller = static_cast<std::size_t>(std::ranges::count_if(
      held_, [identity](const auto& entry) { return entry.second.identity == identity; }));
  if (cleared_ || held_.size() >= max_handles_ || of_caller >= part_of(max_handles_, share)) {
    return std::nullopt;
  }
  held_.emplace(sha256_hex(handle), Held{conversation, std::string(identity), Clock::now()});
  if (!expiry_.joinable()) {
    expiry_ =
        sys::start_thread<std::jthread>([this](const std::stop_token& stop) { expire(stop); });
  }
  changed_.notify_all();
  return handle;
}

HandleRegistry::Use HandleRegistry::use(std::string_view handle, std::string_view identity) {
  const std::string digest = sha256_hex(handle);
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(digest);
  if (found == held_.end() || found->second.identity != identity) return nullptr;
  // While the use lives the count is above one, and `expire` passes it over; its end is the last
  // use.
  return {found->second.conversation.get(),
          [this, digest, held = found->second.conversation](const Conversation*) {
            const std::lock_guard at_end(mutex_);
            const auto still = held_.find(digest);
            if (still != held_.end()) still->second.last_use = Clock::now();
          }};
}

void HandleRegistry::forget(std::string_view handle) {
  const std::string digest = sha256_hex(handle);
  std::shared_ptr<Conversation> gone;  // its end may take a while: not under the lock
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(digest);
  if (found == held_.end()) return;
  gone = std::move(found->second.conversation);
  held_.erase(found);
}

void HandleRegistry::clear() noexcept {
  std::map<std::string, Held, std::less<>> gone;
  {
    const std::lock_guard lock(mutex_);
    cleared_ = true;
    gone.swap(held_);
  }
  if (expiry_.joinable()) {
    expiry_.request_stop();
    expiry_.join();
  }
}

void HandleRegistry::expire(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<Conversation>> gone;
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (auto at = held_.begin(); at != held_.end();) {
      Held& held = at->second;
      // In use: its time begins when that ends.
      if (held.conversation.use_count() > 1) held.last_use = now;
      if (now - held.last_use >= idle_) {
        gone.push_back(std::move(held.conversation));
        at = held_.erase(at);
      } else {
        next = std::min(next, held.last_use + idle_);
        ++at;
      }
    }
    if (!gone.empty()) {
      lock.unlock();
      gone.clear();
      lock.lock();
      continue;
    }
    if (next == Clock::time_point::max()) {
      changed_.wait(lock, stop, [this] { return !held_.empty(); });
    } else {
      changed_.wait_until(lock, stop, next, [] { return false; });
    }
  }
}

}  // namespace casemate::mcp
