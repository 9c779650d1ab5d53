#pragma once

// The host functions that programs may call. Empty unless the host fills it.
//
// Every call goes around the host's own middleware: what an agent framework would ask, log or
// filter before it calls a function is not asked here. A program calls with whatever a model or a
// file it read made it call with. `Identity::app` is not the safe choice, only the declared one.

#include <boost/json/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/json_schema.h"
#include "casemate/base/notice.h"
#include "casemate/core/host_tools.h"
#include "casemate/core/limits.h"
#include "casemate/core/spec.h"
#include "casemate/host_tools/answer.h"
#include "casemate/host_tools/declaration.h"

namespace casemate {

// Who is calling. The same for every call of a run; nothing of it comes from the program.
struct HostToolCaller {
  std::string run_id;
  SandboxKey key;
};

// What a function is told beside its arguments.
struct HostToolContext {
  HostToolCaller caller;
  // Requested when the call's time is over, or its run: nobody waits for the answer any more.
  std::stop_token stop;
};

// A host function: arguments that fit its schema in, one JSON value out. Called from several
// threads at once, never on the host's own. What it throws the program learns nothing of; it is
// logged. One that ignores `context.stop` is left to itself: it must not use anything that may be
// gone by then.
using HostToolFunction = std::function<boost::json::value(const boost::json::object& arguments,
                                                          const HostToolContext& context)>;

// What a request can say of its name's length (channel_frame.h).
inline constexpr std::size_t kMaxHostToolNameBytes = 65'535;

struct HostTool {
  // Any text that is not empty, of at most `kMaxHostToolNameBytes`; a program says it to call, so
  // an identifier serves best.
  std::string name{};
  // For the model: what it does, what it returns. UTF-8.
  std::string description{};
  HostToolFunction function{};
  // JSON Schema (json_schema.h) of the arguments, one object: its `type` is "object". What does not
  // fit never reaches the function.
  std::string parameters{};
  // Absent: counts as acting for the application, untrusted, carrying something out.
  std::optional<HostToolDeclaration> declaration{};
  // From the call's arrival to its answer; then the program gets a refusal. Above 0, at most seven
  // days (`kMaxTimeoutSeconds`). Absent: the run's end.
  std::optional<std::chrono::nanoseconds> timeout{};
  // Calls of this tool, of all runs together, that may be in the function at once; others wait.
  // Absent: the run's own bound.
  std::optional<std::size_t> max_concurrency{};
};

// One call as an observer sees it. `name` is the program's word for it: any bytes, known or not.
struct HostToolEvent {
  const HostToolCaller& caller;
  std::string_view name;
};

// Called when a call arrives, refused ones and unknown names among them; what it returns, when it
// is not empty, is called exactly once with the answer. Either may come from any thread, the second
// from another one than the first. What they throw is logged and contained.
//
// Either may wait, for other calls of the same run too: it holds up its own call alone. What that
// costs: a thread of the host's for each call in which one waits, of which there may be as many as
// calls on their way (64 of each of 64 connections); the call's `timeout`, which begins after the
// first has returned and has no power over the second; and, for a run that is closed meanwhile, its
// `close_patience`, after which the thread is left to itself.
using HostToolObserver =
    std::function<std::function<void(const HostToolAnswer&)>(const HostToolEvent&)>;

enum class RequireDeclared : std::uint8_t { no, yes };

struct HostToolRegistryOptions {
  // Refuse tools without a declaration.
  RequireDeclared require_declared = RequireDeclared::no;
  // In whose name tools may act.
  std::set<Identity> allowed_identities{Identity::app};
  // Refused calls count.
  std::uint64_t max_host_tool_calls_per_run = kDefaultHostToolCalls;
  // Of the answers of one run: bytes of one, bytes of all, number.
  TransferLimits response_limits{};
  HostToolObserver observer{};
  // Told once that host tools are in use (code `host_tools`), with the place of the registration.
  Notices notices{};
};

// One tool as it was registered; never changes.
struct RegisteredHostTool;

// Filled by one thread, then sealed; from then on it may be used from several. Runs keep it alive.
class HostToolRegistry {
 public:
  // Throws `InvalidArgument`: a cap or a response limit of 0, an identity cast from outside.
  explicit HostToolRegistry(HostToolRegistryOptions options = {});
  ~HostToolRegistry();
  HostToolRegistry(const HostToolRegistry&) = delete;
  HostToolRegistry& operator=(const HostToolRegistry&) = delete;

  // Adds a tool; its declaration is captured now. Throws, in this order: `InvalidArgument` for a
  // sealed registry, no function, a name that is empty or no UTF-8 or too long, a description that
  // is no UTF-8, a name that is taken, a malformed declaration; `HostToolNotDeclared`;
  // `HostToolIdentityNotAllowed` for an identity that is not among the allowed (a tool without a
  // declaration acts as `app`; one without an identity is always allowed); `InvalidArgument` for
  // parameters that are no schema of an object, a timeout out of its range, a concurrency of 0.
  // Then nothing was added.
  void register_tool(HostTool tool,
                     const std::source_location& where = std::source_location::current());

  // Sorted.
  std::vector<std::string> names() const;
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  // What a model is told of each tool, sorted by name.
  struct Summary {
    std::string name;
    std::string description;
    // The schema as it was given.
    std::string parameters;
  };
  std::vector<Summary> summaries() const;
  // Null for an unknown name. Lives as long as the registry.
  const RegisteredHostTool* resolve(std::string_view name) const;
  // The captured one; absent also for an unknown name.
  std::optional<HostToolDeclaration> declaration_for(std::string_view name) const;

  // Seals for good, an empty registry too, and says what the tools mean together. Only so is it to
  // be learned, because what is derived from it must not change afterwards.
  HostToolAggregate aggregate();
  bool sealed() const;

  // What a provider is matched against.
  HostToolSurface surface() const;
  const HostToolRegistryOptions& options() const;

  // Functions that were still running after their call had been answered, and are: see
  // `HostToolFunction`.
  std::size_t abandoned_calls() const;

 private:
  friend class HostToolRun;
  struct State;

  // Shared with threads that may outlive the registry.
  std::shared_ptr<State> state_;
};

}  // namespace casemate
