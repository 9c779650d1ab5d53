#pragma once

// What the fake's sandbox, calls and processes share. For this folder only.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/backends/in_process/sandbox.h"
#include "casemate/backends/in_process/store.h"
#include "casemate/core/control.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/vocabulary.h"

namespace casemate::in_process {

// What a provider does at the start of a request: throws `SandboxCancelled` when it was stopped,
// `SandboxTimeout` when its deadline has passed. `operation` appears in the message.
void check_control(const CallControl& control, std::string_view operation);

struct InProcessSandbox::State {
  explicit State(InProcessSandboxOptions given);

  // The part of every operation that comes before its effect: control, capability, the test's hook.
  void begin(Operation operation, std::string_view path, const CallControl& control) const;

  const InProcessSandboxOptions options;
  Store store;

  mutable std::mutex mutex;
  // Below: guarded by `mutex`.
  SandboxInfo info;
  CapabilitySet capabilities;
  HostToolTransport host_tool_transport = HostToolTransport::channel;
  std::vector<CommandRecord> commands;
  std::vector<ProgramRecord> programs;
  std::vector<CallRecord> calls;
  std::vector<int> signals;
};

// The standard output that the script has for a command or a piece of code.
std::string scripted_stdout(const InProcessSandboxOptions& options, std::string_view command);

// `result` as a caller of `wait` gets it: callbacks made, streams cut to `capture_bytes`.
ExecResult deliver(ExecResult result, const ExecRequest& request);

// A call on the shared state; `record` is its position in `State::calls`.
std::unique_ptr<Call> make_call(std::shared_ptr<InProcessSandbox::State> state, std::size_t record,
                                std::string id, std::string directory,
                                std::string host_tool_address);

// Whether the call that a process belongs to is still open.
struct CallScope {
  std::string id;
  std::string directory;
  std::atomic<bool> open{true};
};

std::unique_ptr<Process> make_process(std::shared_ptr<InProcessSandbox::State> state,
                                      std::shared_ptr<const CallScope> scope, ExecRequest request,
                                      std::string command, std::string directory);

}  // namespace casemate::in_process
