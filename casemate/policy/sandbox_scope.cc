#include "casemate/policy/sandbox_scope.h"

#include <utility>

namespace casemate {

SandboxScope::SandboxScope(std::function<int()> dispose)
    : dispose_(std::move(dispose)), disposal_(std::make_shared<ScopeDisposal>()) {}

SandboxScope::SandboxScope(SandboxScope&& other) noexcept
    : dispose_(std::exchange(other.dispose_, nullptr)),
      disposal_(std::move(other.disposal_)),
      owner_(other.owner_) {}

SandboxScope& SandboxScope::operator=(SandboxScope&& other) noexcept {
  if (this != &other) {
    end();
    dispose_ = std::exchange(other.dispose_, nullptr);
    disposal_ = std::move(other.disposal_);
    owner_ = other.owner_;
  }
  return *this;
}

SandboxScope::~SandboxScope() { end(); }

void SandboxScope::end() noexcept {
  if (!dispose_ || !owner_.is_current()) return;
  disposal_->disposed_ = std::exchange(dispose_, nullptr)();
}

}  // namespace casemate
