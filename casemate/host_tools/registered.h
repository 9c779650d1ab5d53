#pragma once

// What a registry and its runs share. For host_tools/ alone.

#include <atomic>
#include <boost/json.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "casemate/host_tools/registry.h"

namespace casemate {

// How many calls of a tool are in its function, and who waits for one of them to come back.
class HostToolSlots {
 public:
  using Waiter = std::function<void()>;

  // Takes a slot, or remembers `waiter`, one for each `who`, to be called once when there may be
  // one again.
  bool take(std::size_t limit, const void* who, const Waiter& waiter) {
    const std::lock_guard lock(mutex_);
    if (taken_ < limit) {
      ++taken_;
      return true;
    }
    waiters_.insert_or_assign(who, waiter);
    return false;
  }

  void give_back() {
    std::map<const void*, Waiter> waiters;
    {
      const std::lock_guard lock(mutex_);
      --taken_;
      waiters.swap(waiters_);
    }
    for (const auto& [who, waiter] : waiters) waiter();
  }

 private:
  std::mutex mutex_;
  std::size_t taken_ = 0;
  std::map<const void*, Waiter> waiters_;
};

struct RegisteredHostTool {
  HostTool tool;
  JsonSchema schema;
  mutable HostToolSlots slots;
};

struct HostToolRegistry::State {
  HostToolRegistryOptions options;
  std::map<std::string, std::unique_ptr<const RegisteredHostTool>, std::less<>> tools;
  std::atomic<bool> sealed = false;
  std::atomic<std::size_t> abandoned = 0;
};

}  // namespace casemate
