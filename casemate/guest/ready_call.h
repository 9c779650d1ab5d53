#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "casemate/core/sandbox.h"
#include "casemate/guest/agent_sandbox.h"
#include "casemate/guest/connection.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/owner_process.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A call that its guest was asked to open, and whose answer was not read yet, or that it will be
// asked to open.
struct AskedCall {
  OpenCall request;
  std::shared_ptr<CallAccounting> accounting;
  // None in a call without a way out.
  std::unique_ptr<CallEgress> egress;
  // None until the guest was asked.
  std::unique_ptr<Connection> control;
  // To an exec that is attached as soon as the call is open, for its first program.
  sys::UniqueFd exec;
  // The same to what serves its files, or null.
  std::unique_ptr<Connection> files;
};

// Throws as `Sandbox::open_call`. `profile` has an id.
AskedCall ask_for_call(const CallProfile& profile, const AgentSandboxParts& parts, CallUse use,
                       const CallControl& control);

// Ends one that nobody will have, and waits a moment for that, so that what counted its processes
// can be put away. Nothing more than its descriptors where the guest does not answer.
void end_asked(AskedCall asked) noexcept;

class ReadyCall;

// Which of a backend's sandboxes have one: 32 at most, for each holds a dozen descriptors.
// Thread-safe. In a forked child of the application no more begin.
class ReadyCalls {
 public:
  // Whether there may be one more. Then `call` has its place until `end`, or until somebody else
  // wants one and the guest of `call` has hung up: of a sandbox that is gone and that nobody asks
  // any more nothing else would say so. May throw `std::system_error`, `std::bad_alloc`.
  bool begin(ReadyCall& call);
  void end(ReadyCall& call) noexcept;

 private:
  sys::OwnerProcess owner_;
  std::mutex mutex_;
  std::vector<ReadyCall*> placed_;
};

// The next call of a sandbox, which the guest opens before anybody wants it: processes, namespaces,
// directories and control groups, all that a call has before its program is known. It is like any
// call that is open at the same time as others. Only a sandbox in which more than one program was
// started has one, so that what is used once costs nothing, and of those as many as `ReadyCalls`
// says.
//
// Thread-safe. In a forked child of the application the call is the parent's: there is none. Such a
// child has copies of its descriptors, as it has of those of every call that was open.
class ReadyCall {
 public:
  ReadyCall() = default;
  ~ReadyCall();
  ReadyCall(const ReadyCall&) = delete;
  ReadyCall& operator=(const ReadyCall&) = delete;

  // For a call that is asked for: the one that is there, which is in use and the caller's from now
  // on. It may have failed or ended since. Throws as `CallAccounting::take_into_use`: after
  // `SandboxUnavailable` there is none any more, else it stays.
  std::optional<AskedCall> take(const CallControl& control);
  // A call of the sandbox has used its files: the next will, too.
  void expect_files() noexcept { files_ = true; }
  // Makes what the host has to make for the next: while a program of the sandbox runs, which is all
  // that the host waits for. With `control` for a moment at most.
  void prepare(const AgentSandboxParts& parts, const CallControl& control) noexcept;
  // Asks the guest to open it, and waits for no answer: when a call is over, for the next program
  // is not to take the processors from the one that runs.
  void ask(const AgentSandboxParts& parts) noexcept;
  // The one whose guest has hung up, out of its place, and nothing else. For `ReadyCalls`.
  std::optional<AskedCall> take_lost() noexcept;

 private:
  std::optional<AskedCall> give_up() noexcept;
  template <typename Act>
  void attempt(const AgentSandboxParts& parts, const CallControl& control, Act act) noexcept;

  sys::OwnerProcess owner_;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> files_ = false;
  // Nobody waits for it: whoever comes while it is held opens a call of his own.
  std::mutex mutex_;
  std::optional<AskedCall> next_;
  std::shared_ptr<ReadyCalls> places_;
};

}  // namespace casemate::guest
