#include "casemate/backends/in_process/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "casemate/backends/in_process/state.h"
#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::in_process {

namespace {

constexpr std::size_t kSnapshotIdBytes = 16;

}  // namespace

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
      at->second.id = identity_digest(key, spec.kind);
      if (number > 1) at->second.id += "-" + std::to_string(number);
    }
    at->second.fingerprint = spec_fingerprint(spec, kBackendName);
    id = at->second.id;
    keys_.push_back(key);
    specs_.push_back(spec);
  }
  sandbox_->serve(options_.declarations, std::move(id), spec, reused);
  return sandbox_;
}

int InProcessSandboxBackend::dispose(const SandboxKey& key) noexcept {
  const std::lock_guard lock(mutex_);
  disposed_.push_back(key);
  forget([&](const SandboxKey& each) { return each == key; });
  return options_.purge_count;
}

int InProcessSandboxBackend::dispose_scope(std::string_view scope,
                                           std::string_view thread_id) noexcept {
  const std::lock_guard lock(mutex_);
  purged_.emplace_back(scope, thread_id);
  forget(
      [&](const SandboxKey& each) { return each.scope == scope && each.thread_id == thread_id; });
  return options_.purge_count;
}

bool InProcessSandboxBackend::dispose_id(std::string_view id) noexcept {
  const std::lock_guard lock(mutex_);
  disposed_ids_.emplace_back(id);
  return std::erase_if(live_, [&](const auto& each) { return each.second.id == id; }) > 0;
}

template <typename Wanted>
void InProcessSandboxBackend::forget(const Wanted& wanted) {
  std::erase_if(live_, [&](const auto& each) { return wanted(each.first.first); });
  std::erase_if(kept_, [&](const auto& each) { return wanted(each.second.snapshot.key); });
}

void InProcessSandboxBackend::require_snapshots(std::string_view operation) const {
  const CapabilitySet& declared = options_.declarations.capabilities;
  if (declared.contains(Capability::snapshot)) return;
  throw SandboxCapabilityNotSupported(
      fmt::format("{} is refused: this backend declares {}", operation, join_names(declared)),
      "declare snapshot in the fake's declarations");
}

SandboxSnapshot InProcessSandboxBackend::snapshot(const SandboxKey& key, std::string_view kind,
                                                  const CallControl& control) {
  require_snapshots("snapshot");
  check_key(key);
  check_control(control, "snapshot");
  const std::vector<CallRecord> calls = sandbox_->calls();
  const std::lock_guard lock(mutex_);
  const auto live = live_.find({key, std::string(kind)});
  if (live == live_.end()) {
    throw NoSuchSandbox(
        fmt::format("no sandbox of kind '{}' lives under this key", escape_for_display(kind)),
        "acquire one first");
  }
  const auto open = std::ranges::find(calls, false, &CallRecord::closed);
  if (open != calls.end()) {
    throw SandboxBusy(fmt::format("call {} of the sandbox is open", open->id), "close it first");
  }
  SandboxSnapshot taken{.id = random_hex(kSnapshotIdBytes),
                        .backend = options_.declarations.name,
                        .key = key,
                        .kind = std::string(kind)};
  for (const auto& [path, bytes] : sandbox_->store().contents()) taken.bytes += bytes.size();
  kept_[taken.id] = {.snapshot = taken,
                     .fingerprint = live->second.fingerprint,
                     .saved = sandbox_->store().save()};
  return taken;
}

std::shared_ptr<Sandbox> InProcessSandboxBackend::restore(const SandboxKey& key,
                                                          const SandboxSpec& spec,
                                                          std::string_view snapshot_id,
                                                          const CallControl& control) {
  require_snapshots("restore");
  check_key(key);
  check_spec(spec);
  check_control(control, "restore");
  {
    const std::lock_guard lock(mutex_);
    const auto kept = kept_.find(snapshot_id);
    if (kept == kept_.end() || kept->second.snapshot.key.scope != key.scope) {
      throw NoSuchSnapshot(
          fmt::format("no snapshot of this scope has the id '{}'", escape_for_display(snapshot_id)),
          "take one and restore it in the same scope");
    }
    if (kept->second.snapshot.kind != spec.kind ||
        kept->second.fingerprint != spec_fingerprint(spec, kBackendName)) {
      throw SandboxSnapshotMismatch(
          fmt::format("the snapshot {} was taken of a sandbox of kind '{}' that was made with "
                      "another spec",
                      snapshot_id, escape_for_display(kept->second.snapshot.kind)),
          "restore it with the spec that it was taken with");
    }
    sandbox_->store().load(*kept->second.saved);
    live_.erase({key, spec.kind});
  }
  return acquire(key, spec, control);
}

bool InProcessSandboxBackend::dispose_snapshot(std::string_view id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto kept = kept_.find(id);
  if (kept == kept_.end()) return false;
  kept_.erase(kept);
  return true;
}

std::vector<SandboxSnapshot> InProcessSandboxBackend::snapshots() const {
  const std::lock_guard lock(mutex_);
  std::vector<SandboxSnapshot> all;
  for (const auto& [id, kept] : kept_) all.push_back(kept.snapshot);
  return all;
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
