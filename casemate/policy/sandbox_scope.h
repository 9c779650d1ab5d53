#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "casemate/sys/owner_process.h"

namespace casemate {

// What a scope guard did; outlives it. May be read from any thread.
class ScopeDisposal {
 public:
  // How many sandboxes were ended. 0 until the guard went.
  int disposed() const noexcept { return disposed_; }

 private:
  friend class SandboxScope;
  std::atomic<int> disposed_{0};
};

// Ends the sandboxes of one conversation when it is destroyed, for whatever reason the block ends.
//
//   std::shared_ptr<const ScopeDisposal> disposal;
//   {
//     const SandboxScope scope = router.scope("tenant", "thread-7");
//     disposal = scope.disposal();
//     ...
//   }
//   disposal->disposed();
//
// Move-only; a moved-from guard does nothing. The destructor never throws, so it cannot hide an
// exception in flight. In a forked child of the process that made it, it does nothing: the
// sandboxes are the parent's.
class SandboxScope {
 public:
  // `dispose` must not throw; it is called at most once and returns how many ended.
  // `SandboxRouter::scope` is the usual way to make one.
  explicit SandboxScope(std::function<int()> dispose);
  SandboxScope(SandboxScope&& other) noexcept;
  SandboxScope& operator=(SandboxScope&& other) noexcept;
  ~SandboxScope();

  // Shared with the guard; null after a move.
  std::shared_ptr<const ScopeDisposal> disposal() const noexcept { return disposal_; }

 private:
  void end() noexcept;

  std::function<int()> dispose_;
  std::shared_ptr<ScopeDisposal> disposal_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate
