#pragma once

// The host tool calls of one run of a program: counted, bounded, answered.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "casemate/base/log.h"
#include "casemate/core/host_tools.h"
#include "casemate/core/spec.h"
#include "casemate/host_tools/answer.h"
#include "casemate/host_tools/held_bytes.h"
#include "casemate/host_tools/registry.h"
#include "casemate/sys/owner_process.h"

namespace casemate {

class Crew;

struct HostToolRunOptions {
  // Whose run it is; functions and observers are told.
  SandboxKey key{};
  // Empty: a fresh random one.
  std::string id{};
  Log log{};
  // Functions that may run at once; more calls wait.
  std::size_t max_parallel_calls = 32;
  // How long `close` waits for functions that were told to stop; not at all at 0 and below.
  std::chrono::nanoseconds close_patience = std::chrono::seconds(2);
};

struct HostToolCounters {
  // Calls that arrived, whatever became of them; never goes down.
  std::uint64_t dispatched = 0;
  // Answers with a value, given or still promised to a call in progress, and their bytes.
  std::uint64_t delivered = 0;
  std::uint64_t delivered_bytes = 0;
  friend bool operator==(const HostToolCounters&, const HostToolCounters&) = default;
};

// The most functions of one registry that may be left to themselves, past their calls' end, before
// no call is begun any more.
inline constexpr std::size_t kMaxAbandonedCalls = 64;

// One run. Every call is answered exactly once; whether it was refused is part of the answer, never
// an exception. Its caps hold under any interleaving. May be used from several threads.
class HostToolRun {
 public:
  using Answered = std::function<void(const HostToolAnswer&)>;

  // Seals the registry. Throws `InvalidArgument` for no registry or a `max_parallel_calls` of 0,
  // `std::system_error` when no thread is to be had.
  HostToolRun(std::shared_ptr<HostToolRegistry> registry, HostToolRunOptions options);
  // Closes.
  ~HostToolRun();
  HostToolRun(const HostToolRun&) = delete;
  HostToolRun& operator=(const HostToolRun&) = delete;

  const std::string& id() const;
  HostToolCounters counters() const;
  // The registry's.
  const TransferLimits& response_limits() const;

  // What one request may have, its name and arguments: as much as an answer, at least 64 KiB.
  std::uint64_t max_request_bytes() const;
  // Of the run's calls, as text and as JSON, until their functions are back: as much as all answers
  // may have, and at least room for one request. A call that finds no room is refused.
  const std::shared_ptr<HeldBytes>& held_bytes() const;

  // Calls `name` with `arguments`, the text of a JSON object (or null: none), both as a program
  // sent them. `framing_bytes` count with the answer's. Refused, in this order, for:
  //   a run that is over; more than the cap of calls (a refused call counts);
  //   an unknown name; a tool that was not declared where that is required; one that acts in a
  //   user's name; arguments that find no room (`held_bytes`), are no object or no JSON that is
  //   accepted (json.h);
  //   the number of answers, their bytes, an answer's own bytes, each when not even one byte more
  //   would fit;
  //   too many functions that did not come back; arguments that do not fit the schema;
  // then, after the function was called, for: its failure, its time, an answer that is no JSON, one
  // over the bytes of one or of all. At a bound passes.
  //
  // `answered` is called exactly once, on this thread or another; what it throws is logged. Only
  // for threads of `crew`: the function runs on this one.
  // `held` is what `arguments` have of `held_bytes` already.
  void dispatch(std::string_view name, std::string arguments, std::uint64_t framing_bytes,
                Answered answered, HeldShare held = {});
  // The same, on a thread of the crew, waited for.
  HostToolAnswer dispatch(std::string_view name, std::string_view arguments,
                          std::uint64_t framing_bytes = 0);

  // Refuses every call that has not been answered and every later one, tells functions to stop and
  // waits a bounded time for them, once. One that does not come back is left to itself. Idempotent;
  // never throws. In a forked child of the host it does nothing.
  void close() noexcept;

  // The threads on which calls run.
  Crew& crew();

  // The registry's.
  HostToolSurface surface() const;

 private:
  struct State;

  std::shared_ptr<State> state_;
  std::unique_ptr<Crew> crew_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate
