#pragma once

// What the router's tests share.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "casemate/backends/in_process/backend.h"
#include "casemate/core/errors.h"
#include "casemate/policy/router.h"

namespace casemate {

using in_process::InProcessSandboxBackend;

// Declares what `plain_spec` needs and not more than the matching tests take away again.
inline BackendDeclarations declared_as(std::string name, std::optional<Isolation> isolation) {
  BackendDeclarations declared = in_process::default_declarations();
  declared.name = std::move(name);
  declared.isolation = isolation;
  declared.capabilities.insert(Capability::files_out);
  return declared;
}

inline std::shared_ptr<InProcessSandboxBackend> backend_with(BackendDeclarations declared,
                                                             BackendProbe probe = {}) {
  return std::make_shared<InProcessSandboxBackend>(
      nullptr, in_process::InProcessBackendOptions{.declarations = std::move(declared),
                                                   .acquire_error = nullptr,
                                                   .probe = std::move(probe),
                                                   .purge_count = 1});
}

inline BackendProbe unavailable(std::string reason) {
  return {.available = false, .reason = std::move(reason), .engine = {}};
}

inline std::shared_ptr<InProcessSandboxBackend> backend_at(std::string name,
                                                           std::optional<Isolation> isolation) {
  return backend_with(declared_as(std::move(name), isolation));
}

// A backend whose answers a test changes while a router uses it.
class ShiftingBackend final : public SandboxBackend {
 public:
  std::function<BackendDeclarations()> declare;
  std::function<BackendProbe()> on_probe = [] { return BackendProbe(); };
  std::function<std::shared_ptr<Sandbox>()> on_acquire = [] { return nullptr; };
  int probes = 0;

  BackendDeclarations declarations() const override { return declare(); }
  std::shared_ptr<Sandbox> acquire(const SandboxKey&, const SandboxSpec&,
                                   const CallControl&) override {
    return on_acquire();
  }
  int dispose(const SandboxKey&) noexcept override { return 0; }
  int dispose_scope(std::string_view, std::string_view) noexcept override { return 0; }
  bool dispose_id(std::string_view) noexcept override { return false; }
  BackendProbe probe() override {
    ++probes;
    return on_probe();
  }
};

inline SandboxSpec plain_spec() {
  SandboxSpec spec;
  spec.kind = "codeact";
  return spec;
}

inline SandboxKey a_key() { return {.scope = "tenant", .thread_id = "7", .agent_dir = "agent"}; }

struct Refused {
  std::string code;
  std::string message;
  std::string hint;
};

// What `action` refuses; absent when it does not. Anything else that it throws passes through.
inline std::optional<Refused> refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const SandboxError& error) {
    return Refused{std::string(error.code()), error.message(), error.hint()};
  }
  return std::nullopt;
}

// Its code, or "nothing".
inline std::string code_of(const std::function<void()>& action) {
  const std::optional<Refused> refused = refusal_of(action);
  return refused ? refused->code : "nothing";
}

}  // namespace casemate
