#pragma once

// For tests: a backend that is another one in everything but what it says of its rung.

#include <memory>
#include <string_view>
#include <utility>

#include "casemate/core/backend.h"

namespace casemate {

class ClaimingBackend final : public SandboxBackend {
 public:
  ClaimingBackend(std::shared_ptr<SandboxBackend> backend, Isolation claimed)
      : backend_(std::move(backend)), claimed_(claimed) {}

  BackendDeclarations declarations() const override {
    BackendDeclarations declared = backend_->declarations();
    declared.isolation = claimed_;
    return declared;
  }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override {
    return backend_->acquire(key, spec, control);
  }
  int dispose(const SandboxKey& key) noexcept override { return backend_->dispose(key); }
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override {
    return backend_->dispose_scope(scope, thread_id);
  }
  bool dispose_id(std::string_view id) noexcept override { return backend_->dispose_id(id); }

 private:
  std::shared_ptr<SandboxBackend> backend_;
  Isolation claimed_;
};

}  // namespace casemate
