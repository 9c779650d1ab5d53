#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/backends/in_process/sandbox.h"
#include "casemate/core/backend.h"
#include "casemate/core/control.h"
#include "casemate/core/declarations.h"
#include "casemate/core/snapshot.h"
#include "casemate/core/spec.h"

namespace casemate::in_process {

inline constexpr std::string_view kBackendName = "in-process";

// What the fake claims unless told otherwise: rung `process`, which is no boundary and is refused
// by every floor above it; egress `allowlist` and `closed`; capabilities and limits by default; no
// OS family; image `host`; every resource bound.
BackendDeclarations default_declarations();

struct InProcessBackendOptions {
  BackendDeclarations declarations = default_declarations();
  // Thrown by `acquire`, which then records nothing.
  std::exception_ptr acquire_error{};
  // Said by `probe`.
  BackendProbe probe{};
  // Said by `dispose` and `dispose_scope`.
  int purge_count = 1;
};

// Hands out one `InProcessSandbox` for every key and kind, and records what it was asked. Shipped
// for tests: it can *claim* any rung so that a policy can be tried against it, and provides none.
// Thread-safe.
class InProcessSandboxBackend final : public SandboxBackend {
 public:
  // Without a sandbox, a new one with default options.
  explicit InProcessSandboxBackend(std::shared_ptr<InProcessSandbox> sandbox = nullptr,
                                   InProcessBackendOptions options = {});

  BackendDeclarations declarations() const override;
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override;
  int dispose(const SandboxKey& key) noexcept override;
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override;
  // True when a sandbox with that id was acquired and not disposed since.
  bool dispose_id(std::string_view id) noexcept override;
  BackendProbe probe() override;

  // Where `Capability::snapshot` is declared. What is kept and put back is the store of the one
  // sandbox that there is, so a restored one shows what a snapshot holds, and never two apart.
  SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                           const CallControl& control) override;
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                   std::string_view snapshot_id,
                                   const CallControl& control) override;
  bool dispose_snapshot(std::string_view id) noexcept override;

  const std::shared_ptr<InProcessSandbox>& sandbox() const noexcept { return sandbox_; }

  // In the order of the calls.
  std::vector<SandboxKey> keys() const;
  std::vector<SandboxSpec> specs() const;
  std::vector<SandboxKey> disposed() const;
  std::vector<std::string> disposed_ids() const;
  // Scope and thread.
  std::vector<std::pair<std::string, std::string>> purged() const;
  int probes() const;
  // Those that are not disposed, by their ids' order.
  std::vector<SandboxSnapshot> snapshots() const;

 private:
  struct Live {
    std::string id;
    std::string fingerprint;
  };
  struct Kept {
    SandboxSnapshot snapshot;
    std::string fingerprint;
    std::shared_ptr<const Store::Saved> saved;
  };

  void require_snapshots(std::string_view operation) const;
  template <typename Wanted>
  void forget(const Wanted& wanted);

  const std::shared_ptr<InProcessSandbox> sandbox_;
  const InProcessBackendOptions options_;
  mutable std::mutex mutex_;
  std::vector<SandboxKey> keys_;
  std::vector<SandboxSpec> specs_;
  std::vector<SandboxKey> disposed_;
  std::vector<std::string> disposed_ids_;
  std::vector<std::pair<std::string, std::string>> purged_;
  int probes_ = 0;
  // By key and kind: the ids of what was acquired and not disposed since, and how many there were.
  std::map<std::pair<SandboxKey, std::string>, Live> live_;
  std::map<std::pair<SandboxKey, std::string>, int> made_;
  std::map<std::string, Kept, std::less<>> kept_;
};

}  // namespace casemate::in_process
