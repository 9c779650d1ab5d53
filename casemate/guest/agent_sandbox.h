#pragma once

// The host's side of the guest program: `Sandbox`, `Call` and `Process` for every provider that can
// put our guest program inside a place and hand us a byte stream to it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/core/egress.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// How long the host believes in a guest that says nothing. Everything that a caller bounds itself
// is bounded by that first.
struct AgentTiming {
  // For an answer that does not depend on a program: opening a call, starting, files. Counted anew
  // at each byte that moves. Then `SandboxTimeout`.
  std::chrono::nanoseconds silence = std::chrono::seconds(30);
  // After a program's own timeout, for the guest to report it. Then `SandboxTimeout`.
  std::chrono::nanoseconds backstop = std::chrono::seconds(5);
  // After a cancel, for the guest to report it. Then `cancelled` with `stopped_known` false.
  std::chrono::nanoseconds cancel_grace = std::chrono::seconds(2);
  // For a call's end to be reported. Then `Call::close` returns false.
  std::chrono::nanoseconds close_patience = std::chrono::seconds(20);
};

// What a backend's counters said at one time, to be compared after a program's end.
struct CallCounters {
  std::uint64_t oom_kills = 0;
  std::uint64_t refused_forks = 0;
  std::chrono::nanoseconds cpu{0};
};

// A bound on the processor time of all that a call runs, held inside.
struct CpuBudget {
  // The kernel's counter of it (cpuacct.usage or cpu.stat), readable; borrowed.
  int meter = -1;
  std::chrono::nanoseconds limit{0};
  // How many processors the call can use at a time, in thousandths; 0: all there are.
  std::uint64_t share_millis = 0;
};

// Whether a call is somebody's from the start, or is kept ready for whoever comes.
enum class CallUse : bool { later, now };

// A backend's accounting of one call. Made by the backend when a call is opened and used until the
// last `Process` of the call is gone, which may be after `closed`. All methods may be called from
// several threads at once.
class CallAccounting {
 public:
  virtual ~CallAccounting() = default;

  // At most 7 descriptors of the files of control groups to which every program of the call
  // writes "0" in order to join. Borrowed: they stay open as long as this object.
  virtual std::vector<int> groups() const { return {}; }

  // Absent: processor time is not bounded. A program that spends the rest of it is ended with
  // SIGKILL; naming the limit is for `finish`.
  virtual std::optional<CpuBudget> cpu_budget() const { return std::nullopt; }

  // A descriptor, read-only, that marks the sandbox as busy as long as it is open anywhere; goes
  // with a program that stays. None: busy is not marked. Throws `SandboxUnavailable`.
  virtual sys::UniqueFd mark_busy() { return {}; }

  // The counters now.
  virtual CallCounters snapshot() noexcept { return {}; }

  // A program has ended: fills `limit`, the outcome `out_of_memory`, `cpu` and `peak_memory` by
  // what the counters gained since `before`. `result` holds what the guest reported, or
  // `signaled` with SIGKILL when the guest's stream ended without a report.
  virtual void finish(const CallCounters& /*before*/, ExecResult& /*result*/) noexcept {}

  // Somebody uses the call, which was open before that. May throw `SandboxUnavailable`,
  // `SandboxBusy`, `SandboxTimeout`, `SandboxCancelled`.
  virtual void take_into_use(const CallControl& /*control*/) {}

  // The guest was asked to end the call, and has not answered: time for what can be put away now.
  virtual void closing() noexcept {}

  // The call is over and, when `known`, nothing of it exists any more.
  virtual void closed(bool /*known*/) noexcept {}
};

class AgentCall;
class ReadyCall;
class ReadyCalls;

// What a provider hands over.
struct AgentSandboxParts {
  // `work_dir` is the guest's own.
  SandboxInfo info;
  // Connects a new control stream to the guest's agent. Throws `SandboxUnavailable` when the
  // sandbox is dead, `SandboxTimeout`, `SandboxCancelled`. Called from several threads.
  std::function<sys::UniqueFd(const CallControl&)> connect;
  // Makes the accounting of a call by its id; empty, or returning nothing: there is none. May
  // throw `SandboxUnavailable`, `SandboxBusy`, `SandboxTimeout`, `SandboxCancelled`. Where calls
  // are kept `ready`, what it returns must not keep the sandbox alive.
  std::function<std::shared_ptr<CallAccounting>(std::string_view id, CallUse, const CallControl&)>
      account;
  // Variables of the image by name, for every program; a request's own win.
  std::map<std::string, std::string> environment;
  // An open call in which that program waits for its file (`AgentCall::hold`), or null. Empty:
  // there never is one.
  std::function<std::unique_ptr<Call>(const ExpectedProgram&, const CallControl&)> held;
  // Shared by all handles to the sandbox, and by all sandboxes of the backend; empty: every call is
  // opened when it is asked for, and any number ahead.
  std::shared_ptr<ReadyCall> ready;
  std::shared_ptr<ReadyCalls> ready_calls;
  // Of a sandbox in `allowlist`: makes the way out of a call by its id. Empty: calls have none. May
  // throw `std::system_error`.
  std::function<std::unique_ptr<CallEgress>(std::string_view id)> egress;
  // What the doors of each such call pretend.
  std::vector<EgressDoorRule> door_rules;
  // `Sandbox::first_process`; empty: absent.
  std::function<std::optional<int>()> first_process;
  // Kept until the sandbox and its calls and processes are gone.
  std::shared_ptr<const void> lease;
  // Gets what a guest says about its own failures, escaped.
  Log log;
  AgentTiming timing;
};

// A sandbox behind a guest program that speaks protocol.h.
//
// Every byte of the guest's is checked: a frame that is too large, unknown, out of order or does
// not decode is `SandboxUnavailable`, as is a stream that ends without an exit status. SIGPIPE is
// never raised and no thread is started. In a forked child of the host, destructors close
// descriptors and do nothing else.
class AgentSandbox : public Sandbox {
 public:
  explicit AgentSandbox(AgentSandboxParts parts);

  SandboxInfo info() const override;
  std::optional<int> first_process() const override;
  std::unique_ptr<Call> open_call(const CallProfile& profile, const CallControl& control) override;

 private:
  std::unique_ptr<AgentCall> take_ready(const CallControl& control);

  std::shared_ptr<const AgentSandboxParts> parts_;
};

}  // namespace casemate::guest
