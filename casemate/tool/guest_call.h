#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"
#include "casemate/policy/router.h"
#include "casemate/sys/owner_process.h"

namespace casemate {

// A call whose end could not be shown, after its sandbox was disposed for it.
struct ReclaimFailure {
  // The tool, or whoever ran the call.
  std::string tool;
  SandboxKey key;
  // The call's directory, an absolute guest path.
  std::string path;
  std::string reason;
};

// Called at most once a call, from the thread that closes it. What it throws is logged and
// contained.
using ReclaimCallback = std::function<void(const ReclaimFailure&)>;

// A sandbox and one call open on it: the only road by which `tool/` and the kinds hold guest state.
//
// Closing (or destroying) it closes the call. Where the call cannot say that everything of it is
// gone, its sandbox is disposed, so that nothing of it meets a later call, and the failure is
// logged and reported once; other sandboxes of the key, also one that took its place meanwhile, are
// left alone. In a forked child of the process that opened it, it does nothing. Move-only; one
// thread at a time may open and close it, its `Call` is as free as any.
class GuestCall {
 public:
  // For reports: who runs it, and who wants to know.
  struct Owner {
    std::string tool;
    ReclaimCallback on_reclaim_failure;
    Log log;
  };

  // Acquires by the router's rules and opens a call with a fresh id. Throws what `acquire` and
  // `open_call` throw; then nothing is left open.
  static GuestCall open(const SandboxRouter& router, const SandboxKey& key, const SandboxSpec& spec,
                        const CallControl& control, Owner owner);

  // Opens a call on a sandbox that was acquired under `key`.
  static GuestCall open_on(const SandboxRouter& router, std::shared_ptr<Sandbox> sandbox,
                           const SandboxKey& key, const CallControl& control, Owner owner,
                           const CallProfile& profile = {});

  GuestCall(GuestCall&& other) noexcept;
  GuestCall& operator=(GuestCall&&) = delete;
  GuestCall(const GuestCall&) = delete;
  ~GuestCall();

  Sandbox& sandbox() { return *sandbox_; }
  Call& call() { return *call_; }
  // `<call directory>/work`, the program's current directory.
  std::string work_directory() const { return call_->directory() + "/work"; }

  // True when it is known that nothing of the call exists any more; else the sandbox was disposed.
  // Idempotent; never throws.
  bool close() noexcept;

  // Ends the sandbox, and the call with it at once: for a sandbox that nobody is to use again.
  // True when the sandbox was ended here; otherwise it had gone or could not be ended, and the call
  // is closed like any. Does nothing, and is false, after the call was closed; never throws.
  bool close_with_sandbox() noexcept;

  // `close` for a sandbox that is known to have failed: it is disposed where the end cannot be
  // shown, as ever, but nobody is told.
  void abandon() noexcept;

 private:
  GuestCall(const SandboxRouter& router, std::shared_ptr<Sandbox> sandbox,
            std::unique_ptr<Call> call, const SandboxKey& key, Owner owner);
  // Closes, and disposes where that is needed. Returns whether the sandbox still lived then, or
  // nothing when the end is known or was dealt with before.
  std::optional<bool> end() noexcept;
  void report(bool lived) noexcept;

  SandboxRouter router_;
  std::shared_ptr<Sandbox> sandbox_;
  std::unique_ptr<Call> call_;
  SandboxKey key_;
  std::string sandbox_id_;
  Owner owner_;
  sys::OwnerProcess owner_process_;
  bool closed_ = false;
  bool known_ = true;
};

}  // namespace casemate
