#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "casemate/core/sandbox.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/connection.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A call that its guest was asked to open, and whose answer was not read yet.
struct AskedCall {
  OpenCall request;
  std::shared_ptr<CallAccounting> accounting;
  // None in a call without a way out.
  std::unique_ptr<CallEgress> egress;
  std::unique_ptr<Connection> control;
  // To an exec that is attached as soon as the call is open, for its first program.
  sys::UniqueFd exec;
};

// Throws as `Sandbox::open_call`. `profile` has an id.
AskedCall ask_for_call(const CallProfile& profile, const AgentSandboxParts& parts, CallUse use,
                       const CallControl& control);

// The next call of a sandbox, which the guest opens before anybody wants it: processes, namespaces,
// directories and control groups, all that a call has before its program is known. It is like any
// call that is open at the same time as others. Only a sandbox that was called more than once has
// one, so that what is used once costs nothing.
//
// Thread-safe. In a forked child of the application the call is the parent's: there is none.
class ReadyCall : public std::enable_shared_from_this<ReadyCall> {
 public:
  // When the guest has time for it: while a program of the sandbox runs, which is what the host
  // waits for as well, or, where opening a call takes what that program needs, once its call is
  // over.
  enum class When : bool { after_a_call, while_a_program_runs };
  explicit ReadyCall(When when) : when_(when) {}

  // For a call that is asked for: the one that is there, which is the caller's from now on. It may
  // have failed or ended since.
  std::optional<AskedCall> take();
  // Asks for the next, if this is the time. Waits for no answer.
  void fill(When now, const AgentSandboxParts& parts) noexcept;
  void drop() noexcept;

 private:
  const When when_;
  sys::OwnerProcess owner_;
  std::mutex mutex_;
  int calls_ = 0;
  std::optional<AskedCall> next_;
};

// The sandboxes of a backend that have one, each of which holds some seven descriptors: the 32 in
// which one was opened last. Thread-safe.
class ReadyCalls {
 public:
  void add(const std::shared_ptr<ReadyCall>& call);

 private:
  std::mutex mutex_;
  std::deque<std::weak_ptr<ReadyCall>> calls_;
};

}  // namespace casemate::guest
