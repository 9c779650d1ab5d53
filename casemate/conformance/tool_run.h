#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "casemate/conformance/trial.h"
#include "casemate/core/control.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"
#include "casemate/host_tools/registry.h"
#include "casemate/host_tools/run.h"
#include "casemate/host_tools/session.h"

namespace casemate::conformance {

// A Python program that finds `call(name, /, **arguments)` and `HostToolError`, as text to be put
// before it: a caller of its own, so that only the road is on trial and not what a guest brings.
extern const std::string_view kChannelCaller;

// One run of a program that may call the host, over the transport that the backend declares. Has a
// call of its own in the trial's sandbox.
class ToolRun {
 public:
  // Throws `Unmet` where host tools are declared and no transport is; else as what it opens.
  ToolRun(Trial& trial, std::shared_ptr<HostToolRegistry> registry);
  ~ToolRun();
  ToolRun(const ToolRun&) = delete;
  ToolRun& operator=(const ToolRun&) = delete;

  // Runs `program` behind what it needs to call. Once only over files.
  ExecResult run(std::string_view program, const CallControl& control);
  // What a program started by the program needs before its own text.
  std::string_view caller() const;

  Call& call() { return *call_; }
  HostToolCounters counters() const;

 private:
  ExecResult run_over_files(std::string_view program, const CallControl& control);

  Trial& trial_;
  std::shared_ptr<HostToolRegistry> registry_;
  // One of the two.
  std::unique_ptr<HostToolSession> session_;
  std::unique_ptr<HostToolRun> run_;
  std::unique_ptr<Call> call_;
};

}  // namespace casemate::conformance
