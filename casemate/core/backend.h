#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"
#include "casemate/core/declarations.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/snapshot.h"
#include "casemate/core/spec.h"

namespace casemate {

// Whether a backend can work here, and if not, why and what would mend it.
struct BackendProbe {
  bool available = true;
  // Empty when available.
  std::string reason{};
  // A shell command that would mend it, with nothing to be filled in; empty where there is none.
  std::string fix{};
  // The engine found, for a person ("linux 6.1, cgroup v2").
  std::string engine{};
  // Why programs and a sandbox's own processes have one user id between them, as seen in the one
  // that was tried; empty where they have two, or nothing is known of that.
  std::string one_user_id{};
};

// One sandbox in a listing. Key and kind are empty where another build's record cannot be read.
struct SandboxRecord {
  std::string id{};
  std::string backend{};
  Isolation isolation = Isolation::process;
  SandboxKey key{};
  std::string kind{};
  std::chrono::nanoseconds age{0};
  std::chrono::nanoseconds idle{0};
  std::uint64_t processes = 0;
  std::uint64_t memory_bytes = 0;
  // Of the spec that it was made with.
  std::map<std::string, std::string> labels{};
};

// A provider of sandboxes. Everything above asks the router, which asks this.
//
// All methods may be called from several threads and, for a backend whose sandboxes outlive one
// process, at the same time from several processes. State is the provider's: what another process
// made is found, adopted and disposed here too.
//
// A host process has one lease on each sandbox that it acquired or attached, whatever becomes of
// the handles: from the first acquire until the sandbox is disposed (by any process), the backend
// is destroyed (a handle that outlives it keeps its own sandbox), or the process ends, also by a
// kill. A sandbox without a lease ends, unless the `keep_idle` of the process that let go of it
// last (of its latest acquire; an attach leaves what was wished before) lets it wait that long for
// the next. Conversations that are over are for the host to dispose.
class SandboxBackend {
 public:
  virtual ~SandboxBackend() = default;

  // What it claims now. Cheap: no process is started and nothing is waited for.
  virtual BackendDeclarations declarations() const = 0;

  // Get-or-create for `(key, spec.kind)`. A live sandbox with the spec's fingerprint is adopted,
  // and where this process has its lease already that is cheap; an idle one with another
  // fingerprint is replaced; a busy one with another is `SandboxBusy`; one that died or was
  // disposed is made anew. A creator that loses a race adopts the winner's. Throws
  // `SandboxUnavailable` (with the provider's reason), `SandboxTimeout`, `SandboxCancelled`,
  // `SandboxImageNotSupported`, `SandboxImageInvalid`, `SandboxLimitNotEnforceable`,
  // `InvalidArgument` for an empty key part; then nothing is left.
  virtual std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                           const CallControl& control) = 0;

  // Ends every sandbox under the key, of every kind, busy or not. Never throws; failures are
  // logged. Returns how many ended.
  virtual int dispose(const SandboxKey& key) noexcept = 0;

  // Ends every sandbox of the conversation, whoever made it. Never throws. Returns how many.
  virtual int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept = 0;

  // Ends the one sandbox of that id (`SandboxInfo::id`), busy or not, and no other of its key; true
  // when it lived. Never throws; failures are logged. An id is never used twice. Without a default,
  // because it is how a sandbox goes in which the end of a call could not be shown.
  virtual bool dispose_id(std::string_view id) noexcept = 0;

  // -- Administration, with working defaults -----------------------------------------------------

  // Tries whether it can work here. May start something small and take a moment.
  virtual BackendProbe probe();
  // Every sandbox this user has here. Default: none.
  virtual std::vector<SandboxRecord> list();
  // The live sandbox of that key and kind, never created. Default and when absent:
  // `NoSuchSandbox`.
  virtual std::shared_ptr<Sandbox> attach(const SandboxKey& key, std::string_view kind,
                                          const CallControl& control);

  // -- Capability::snapshot; without it the defaults refuse (`SandboxCapabilityNotSupported`) -----
  //
  // A snapshot is what programs have written and a later call of the same sandbox would find:
  // names, contents, modes, times and links of files. Programs themselves, what a call has of its
  // own (its directory, /tmp, /dev/shm) and what a backend gives each sandbox afresh (its random
  // numbers, its id and machine id, its address) are no part of it. A backend that keeps more says
  // so in its README.
  //
  // It belongs to the conversation (scope and thread) of the sandbox that it was taken of, and may
  // be restored under any key of the same scope. Its end: `dispose_snapshot`, `dispose` of the key
  // that it was taken under, `dispose_scope` of its conversation, by any process; and that of the
  // backend that took it, or of its process. That of a killed process is over at once and takes
  // storage until the next operation of another. The end of the sandbox that it was taken of is
  // none.
  //
  // It is made by a guest and therefore hostile, and is never looked into outside a sandbox: it can
  // bring nothing into a sandbox that a program in it could not have made itself.

  // Takes one of the live sandbox of that key and kind, of at most what its disk bound lets it
  // hold. Throws `NoSuchSandbox`, never making one; `SandboxBusy` while a call is open or a program
  // stays (so is a call that opens while it is taken); `SandboxFileError` for what cannot be kept,
  // naming it; `SandboxUnavailable`, also for a guest that sends more than its bound can hold, and
  // where the sandbox is disposed meanwhile, which waits for no snapshot; `SandboxTimeout`,
  // `SandboxCancelled`. Then nothing is left, but where it was cut short a directory or file that
  // programs had closed to themselves may be open to them (user r-x) in the sandbox.
  virtual SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                                   const CallControl& control);

  // A new sandbox for `(key, spec.kind)` that begins with what the snapshot has. What it holds
  // counts against its disk bound. One that lives under that key and kind is replaced, its handles
  // with it; a busy one is `SandboxBusy`. Throws as `acquire`, and `NoSuchSnapshot` for an id that
  // is unknown, over, or of another scope; `SandboxSnapshotMismatch` when it was taken of another
  // kind, or of a sandbox made with another image, other rules, bounds or build;
  // `SandboxFileError` for what could not be put back. Then what lived under the key still does; a
  // provider that fails at the last step, putting the new one in its place, may have ended it.
  virtual std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                           std::string_view snapshot_id,
                                           const CallControl& control);

  // `restore` under `to` of what `snapshot` takes under `from`, of which nothing is left then.
  // The two keys are of one scope and differ (`InvalidArgument`). The default is just that.
  virtual std::shared_ptr<Sandbox> fork(const SandboxKey& from, const SandboxKey& to,
                                        const SandboxSpec& spec, const CallControl& control);

  // Ends one. Sandboxes that began from it live on. True when it was there. Never throws.
  virtual bool dispose_snapshot(std::string_view id) noexcept;
};

}  // namespace casemate
