#include "casemate/backends/in_process/backend.h"

#include <string>
#include <utility>

#include "casemate/backends/in_process/state.h"

namespace casemate::in_process {

BackendDeclarations default_declarations() {
  BackendDeclarations declared;
  declared.name = kBackendName;
  declared.isolation = Isolation::process;
  declared.egress_modes = {Egress::allowlist, Egress::closed};
  declared.image_forms = {ImageForm::host};
  declared.enforceable_limits = {Limit::memory, Limit::pids, Limit::disk, Limit::cpu, Limit::files};
  declared.cpu_seconds_enforceable = true;
  return declared;
}

InProcessSandboxBackend::InProcessSandboxBackend(std::shared_ptr<InProcessSandbox> sandbox,
                                                 InProcessBackendOptions options)
    : sandbox_(sandbox ? std::move(sandbox) : std::make_shared<InProcessSandbox>()),
      options_(std::move(options)) {}

BackendDeclarations InProcessSandboxBackend::declarations() const { return options_.declarations; }

std::shared_ptr<Sandbox> InProcessSandboxBackend::acquire(const SandboxKey& key,
                                                          const SandboxSpec& spec,
                                                          const CallControl& control) {
  if (options_.acquire_error) std::rethrow_exception(options_.acquire_error);
  check_key(key);
  check_spec(spec);
  check_control(control, "acquire");
  bool reused = false;
  std::string id;
  {
    const std::lock_guard lock(mutex_);
    const std::pair identity(key, spec.kind);
    const auto [at, fresh] = live_.try_emplace(identity);
    reused = !fresh;
    if (fresh) {
      const int number = ++made_[identity];
      at->second = identity_digest(key, spec.kind);
      if (number > 1) at->second += "-" + std::to_string(number);
    }
    id = at->second;
    keys_.push_back(key);
    specs_.push_back(spec);
  }
  sandbox_->serve(options_.declarations, std::move(id), spec, reused);
  return sandbox_;
}

int InProcessSandboxBackend::dispose(const SandboxKey& key) noexcept {
  const std::lock_guard lock(mutex_);
  disposed_.push_back(key);
  std::erase_if(live_, [&](const auto& each) { return each.first.first == key; });
  return options_.purge_count;
}

int InProcessSandboxBackend::dispose_scope(std::string_view scope,
                                           std::string_view thread_id) noexcept {
  const std::lock_guard lock(mutex_);
  purged_.emplace_back(scope, thread_id);
  std::erase_if(live_, [&](const auto& each) {
    return each.first.first.scope == scope && each.first.first.thread_id == thread_id;
  });
  return options_.purge_count;
}

bool InProcessSandboxBackend::dispose_id(std::string_view id) noexcept {
  const std::lock_guard lock(mutex_);
  disposed_ids_.emplace_back(id);
  return std::erase_if(live_, [&](const auto& each) { return each.second == id; }) > 0;
}

BackendProbe InProcessSandboxBackend::probe() {
  const std::lock_guard lock(mutex_);
  ++probes_;
  return options_.probe;
}

std::vector<SandboxKey> InProcessSandboxBackend::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

std::vector<SandboxSpec> InProcessSandboxBackend::specs() const {
  const std::lock_guard lock(mutex_);
  return specs_;
}

std::vector<SandboxKey> InProcessSandboxBackend::disposed() const {
  const std::lock_guard lock(mutex_);
  return disposed_;
}

std::vector<std::string> InProcessSandboxBackend::disposed_ids() const {
  const std::lock_guard lock(mutex_);
  return disposed_ids_;
}

std::vector<std::pair<std::string, std::string>> InProcessSandboxBackend::purged() const {
  const std::lock_guard lock(mutex_);
  return purged_;
}

int InProcessSandboxBackend::probes() const {
  const std::lock_guard lock(mutex_);
  return probes_;
}

}  // namespace casemate::in_process
