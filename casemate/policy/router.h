#pragma once

// The host's policy between a workload and a provider: every pairing weaker than the host asked for
// is refused before anything starts.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/backend.h"
#include "casemate/core/control.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"
#include "casemate/core/vocabulary.h"
#include "casemate/policy/sandbox_scope.h"

namespace casemate {

// How a backend is found for a spec.
enum class Selection : std::uint8_t {
  // One backend, resolved when the router is made: `RouterOptions::selected`, or the first
  // registered. A spec that it cannot serve is refused; another backend is never substituted.
  configured,
  // For each spec anew, the first registered backend that can serve it and is available. Opt-in:
  // where a program runs then depends on what it asks for and on what works on this machine, but
  // never below the floor.
  first_that_can_serve,
};

struct RouterOptions {
  // The weakest rung that anything may run on. A spec can ask for more, never for less. The
  // default is the weakest that does not share the host's kernel.
  Isolation min_isolation = Isolation::microvm;
  // Name of the backend to use; absent means the first registered. Contradicts
  // `Selection::first_that_can_serve`.
  std::optional<std::string> selected{};
  // Refused to every spec, whatever the backend offers.
  CapabilitySet denied_capabilities{};
  std::set<Identity> denied_identities{};
  Selection selection = Selection::configured;
  // Operator's log: backends that were passed over. Refusals are thrown, not logged; what could not
  // be disposed stands in the log of its backend.
  Log log{};
};

// Matches specs against backends and hands out sandboxes.
//
// A copy is another handle to the same router. All methods may be called from several threads and
// none holds a lock while it calls a backend or the log. The router trusts what a backend declares:
// that a claim is true is shown by the conformance kit, not here.
class SandboxRouter {
 public:
  // Checks, in this order:
  //   backends none of which is null; `min_isolation` a known rung, also with no backend; every
  //   denied capability, then identity, a known one; `selected` only with `Selection::configured`
  //                                                              (`InvalidArgument`);
  //   no backends: the router is disabled and nothing else is checked;
  //   `selected` is the name of one (the first of that name)      (`NoSandboxBackend`);
  //   its rung is stated, known, and at or above the floor        (`SandboxBackendNotPermitted`).
  // Only the selected backend is checked: a weak one beside it neither harms nor helps. With
  // `first_that_can_serve` at least one backend must pass the last check.
  explicit SandboxRouter(std::vector<std::shared_ptr<SandboxBackend>> backends,
                         RouterOptions options = {});

  // False when no backend is registered: nothing can be acquired, and nothing is refused.
  bool enabled() const noexcept;

  // The backend resolved at construction; null when disabled or with `first_that_can_serve`.
  std::shared_ptr<SandboxBackend> backend() const noexcept;

  // The backend that would serve the spec now; null when disabled. Throws like `ensure_can_serve`.
  std::shared_ptr<SandboxBackend> backend_for(const SandboxSpec& spec) const;

  // Returns quietly when the spec can be served, and at once when the router is disabled. Starts
  // no sandbox. Refusals, the earliest of them:
  //   0. the spec itself breaks a construction rule               `InvalidArgument`
  //   1. it requires a denied capability                          `SandboxCapabilityDenied`
  //   2. it acts under a denied identity                          `SandboxIdentityDenied`
  //   3. the backend's rung is unset, unknown, or below the
  //      stricter of the host's floor and the spec's              `SandboxBackendNotPermitted`
  //   4. it requires a capability that is not declared            `SandboxCapabilityNotSupported`
  //   5. it requires an OS family that is not declared            `SandboxOsFamilyNotSupported`
  //   6. the declared transfer limits are malformed (a 0), or the
  //      spec's exceed them: files in, then files out; each only
  //      when the spec can move files that way `SandboxTransferLimitsNotPermitted`
  //   7. the backend does not enforce the egress mode             `SandboxEgressNotEnforced`
  //   8. the form of `image_id` or `image` is not declared (none
  //      given: the backend's own)                                `SandboxImageNotSupported`
  //   9. a *stated* resource bound cannot be held                 `SandboxLimitNotEnforceable`
  // Equality passes everywhere. With `first_that_can_serve` 3 to 9 are asked of each backend in
  // turn, then its `probe`, whose yes is remembered until an acquire finds it unavailable. When
  // none is left: the one backend's own refusal; the refusal that all share; else
  // `NoSandboxBackend`; the message lists every backend's reason.
  void ensure_can_serve(const SandboxSpec& spec) const;

  // `check_key`, then `ensure_can_serve`, then the backend's `acquire`, whose refusals pass
  // through. Throws `NoSandboxBackend` when disabled.
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) const;

  // -- Snapshots: as of `SandboxBackend`, of the backend that serves the spec -------------------
  //
  // To each the spec counts as one that requires `Capability::snapshot`, so a host that denies it,
  // or a backend that does not declare it, refuses before anything is asked of the backend. With
  // `first_that_can_serve` have the spec require it from the first acquire on: otherwise that may
  // have been served by a backend that keeps none. Each throws as `acquire`, too.
  SandboxSnapshot snapshot(const SandboxKey& key, const SandboxSpec& spec,
                           const CallControl& control) const;
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                   std::string_view snapshot_id, const CallControl& control) const;
  std::shared_ptr<Sandbox> fork(const SandboxKey& from, const SandboxKey& to,
                                const SandboxSpec& spec, const CallControl& control) const;
  // Whichever registered backend has it. Returns whether it was there.
  bool dispose_snapshot(std::string_view id) const noexcept;

  // The default resource bounds of the spec that the serving backend cannot hold: it runs without
  // them. Empty when disabled. Throws like `ensure_can_serve`.
  std::set<Limit> limits_not_held(const SandboxSpec& spec) const;

  // Ends every sandbox under the key, of every kind, in *every* registered backend: one that is not
  // selected now may hold what an earlier configuration made. Snapshots, too; they are not counted.
  // Returns how many ended.
  int dispose(const SandboxKey& key) const noexcept;

  // Ends every sandbox of the conversation in every registered backend. Returns how many ended.
  int dispose_scope(std::string_view scope, std::string_view thread_id) const noexcept;

  // Ends the one sandbox of that id, whichever registered backend has it. Returns whether it lived.
  bool dispose_id(std::string_view id) const noexcept;

  // A guard that runs `dispose_scope` when it goes. It keeps what it needs of this router alive.
  SandboxScope scope(std::string scope, std::string thread_id) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace casemate
