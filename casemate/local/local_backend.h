#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "casemate/core/backend.h"
#include "casemate/local/engine.h"
#include "casemate/local/local_options.h"

namespace casemate::local {

class LocalSandboxes;

// A backend that makes its sandboxes on this machine, whatever draws their boundary.
//
// Sandboxes are kept by a process of its own (the keeper), started at the first acquire; this
// process is never their parent, gets no signals of theirs and has no thread for them; only the
// start of the keeper is, for an instant, a child that ends at once and is waited for.
//
// A sandbox belongs to the processes that acquired it, not to their handles: this object keeps one
// lease (two descriptors) on each until it is disposed, here or elsewhere, or this object goes, or
// the process ends, however. So an acquire of what is held already costs next to nothing, and a
// host that never disposes keeps a sandbox for every key it ever used. A handle that outlives this
// object keeps its own sandbox. A fork of this process without exec holds them too, until it ends.
class LocalBackend : public SandboxBackend {
 public:
  LocalBackend(std::shared_ptr<Engine> engine, LocalOptions options);
  ~LocalBackend() override;

  BackendDeclarations declarations() const override;
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override;
  int dispose(const SandboxKey& key) noexcept override;
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override;

  // Makes a sandbox and ends it.
  BackendProbe probe() override;
  std::vector<SandboxRecord> list() override;
  std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                  const CallControl& control) override;
  bool dispose_id(std::string_view id) noexcept override;

  // What programs left in the work directory and in /home/user is kept. A snapshot is a file of the
  // state directory, of at most what the disk bound lets a sandbox hold and what is said about each
  // file; one of a process that ended goes with the next sweep.
  SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                           const CallControl& control) override;
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                   std::string_view snapshot_id,
                                   const CallControl& control) override;
  bool dispose_snapshot(std::string_view id) noexcept override;

  // Waits until the warm pool holds all that it shall, at most until the deadline. False when that
  // did not come about (the log says why), and without a pool.
  bool wait_until_warm(const CallControl& control);

 private:
  // Shared with the sandboxes, which may outlive the backend.
  std::shared_ptr<LocalSandboxes> sandboxes_;
};

}  // namespace casemate::local
