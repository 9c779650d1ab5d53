#pragma once

// One program, from the request to what came of it: the one road that the tool, the command line
// and any other front end take.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/core/egress.h"
#include "casemate/core/exec.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"
#include "casemate/host_tools/registry.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/policy/router.h"
#include "casemate/tool/guest_call.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"

namespace casemate {

// A program's bound when the caller states none.
inline constexpr std::chrono::seconds kDefaultCodeactTimeout{120};

// How the host set it up; the same for every run. All that it points to must outlive the run.
struct CodeactWiring {
  SandboxRouter router;
  // From `codeact_sandbox_spec` with the same `outputs`; its `files_in` and `files_out` are the
  // caps.
  SandboxSpec spec;
  CodeactOutputs outputs = CodeactOutputs::none;
  // Where shared files come from; null shares none.
  std::shared_ptr<const FileStore> file_store{};
  // Where outputs land; required unless `outputs` is none.
  std::shared_ptr<OutputSink> output_sink{};
  // Kept of each stream, head and tail.
  std::uint64_t capture_bytes = kDefaultCaptureBytes;
  // For reports and the log: who runs it ("execute_code", "casemate run").
  GuestCall::Owner owner;
  // Allows a directory store and a file-system sink that overlap.
  std::optional<UnsafeSharedStore> unsafe_shared_store{};
  // What programs may call; the registry that `spec` was made with.
  std::shared_ptr<HostToolRegistry> host_tools{};
  // Each run ends its sandbox, in one with its call: for keys that are one run's own.
  bool ends_sandbox = false;
};

// What is asked. Everything here may come from a model but `environment`, `stdin_descriptor` and
// `timeout`, which are the host's.
struct CodeactRequest {
  // Python source as bytes; reaches the interpreter unchanged.
  std::string code{};
  // Names in the store, to be copied into the program's current directory.
  std::vector<std::string> files{};
  // Names that the program will write there (`CodeactOutputs::declared` only). Each may be absent
  // in the end.
  std::vector<std::string> outputs{};
  // `sys.argv[1:]`.
  std::vector<std::string> arguments{};
  // Beside the sandbox's base set and what `codeact_environment` adds.
  std::map<std::string, std::string> environment{};
  // A readable descriptor of the host's to copy standard input from; -1: it is empty. See
  // `ExecRequest::stdin_descriptor`.
  int stdin_descriptor = -1;
  // From the program's start; absent is no bound.
  std::optional<std::chrono::nanoseconds> timeout = kDefaultCodeactTimeout;
  // What the program prints, as it comes, whole.
  OutputCallback on_output{};
  // Told the step, before it begins.
  std::function<void(std::string_view)> progress{};
};

// Why outputs were not (all) collected although the program ran. Some may have landed when the sink
// lands one by one; those are not known here.
struct CodeactCollectError {
  // The refusal's code; "SinkFailed" for an exception of the sink's that is no refusal.
  std::string code;
  // As the refusal says them; for an operator.
  std::string message;
  std::string hint;
  // What a model may read, by the table in tool/refusals.h.
  std::string sentence;
};

// Wall time by the steps; `acquire` includes opening the call, `total` everything.
struct CodeactTimings {
  std::chrono::nanoseconds acquire{0};
  std::chrono::nanoseconds stage{0};
  std::chrono::nanoseconds run{0};
  std::chrono::nanoseconds collect{0};
  std::chrono::nanoseconds total{0};
};

struct CodeactRun {
  SandboxInfo sandbox;
  ExecResult result;
  // The wiring's: `result_text` and `codeact_run_json` write at most so many bytes of a stream,
  // also where they replace what is not UTF-8 and so make it longer.
  std::uint64_t capture_bytes = kDefaultCaptureBytes;
  // In the order in which they were named.
  std::vector<LandedArtifact> artifacts;
  // Named and not written, sorted. The program's outcome stands all the same.
  std::vector<std::string> missing_outputs;
  std::optional<CodeactCollectError> collect_error;
  // What the host has to say beside the streams, one sentence each: a limit that bit, a sandbox
  // that had to be made anew, a list of outputs that was not written.
  std::vector<std::string> notes;
  // Calls of host tools that the program made, the refused ones among them.
  std::uint64_t host_tool_calls = 0;
  // What the program asked to reach outside, and what came of it, in that order.
  std::vector<EgressRecord> egress;
  // By `CodeactWiring::ends_sandbox`. False there: it could not be ended, or had gone.
  bool sandbox_ended = false;
  CodeactTimings timings;
};

// What a run starts that has neither arguments nor input nor host tools: for a provider that keeps
// interpreters ready (`WarmPool::program`). `image` as `SandboxInfo` says it, "host" for that of
// this machine; `requested` as in the request. Programs in another encoding than UTF-8, or with an
// archive at their end, begin from nothing all the same, and so do those over 64 KiB.
ExpectedProgram codeact_expected_program(std::string_view image,
                                         const std::map<std::string, std::string>& requested = {});

// Runs a program. Refuses, before anything is read or started, in this order:
//   the key (`InvalidArgument`); a timeout that is not above 0 or over 7 days, outputs, a sink or
//   host tools that do not fit the wiring, a store and a sink that overlap (`InvalidArgument`,
//   `SandboxOutputSinkRequired`);
//   names of outputs: more than `files_out.max_files` (`SandboxTransferCapExceeded`), a rule
//   broken, the same file twice, one a directory of another;
//   more files than `files_in.max_files` less one for the program, then the program's bytes
//   (`SandboxTransferCapExceeded`);
//   names of files: a rule broken, reserved, named twice, not in the store (with the nearest that
//   are); then each file as it is read.
// Then it acquires, opens a call, writes files and program, runs
// `python3 <call>/program/program.py ARG...` in `<call>/work` (image `host`: /usr/bin/python3,
// whatever PATH the request's environment has), collects after every outcome but
// `cancelled`, and closes the call, or ends its sandbox. A sandbox found dead before the program
// began is acquired anew, once. Refusals before the program ran are thrown (an image without
// python3 is `SandboxImageInvalid`), and so are `SandboxUnavailable` and `SandboxTimeout` when the
// provider failed under it, and what a listener threw. The two of the provider's carry the
// `CodeactRun` of a program that had begun (core/errors.h, `Carrying`): its sandbox and, as its
// result's streams, what had come by then; how it ended is not known, and the result's other
// members say nothing. Once the program ended, nothing is: see `collect_error`. Whatever happens,
// nothing of the call is left, or its sandbox is disposed. `control` bounds all of it except that
// the program's own bound is `timeout`.
CodeactRun run_codeact(const CodeactWiring& wiring, const SandboxKey& key,
                       const CodeactRequest& request, const CallControl& control);

// The directory, read-only in every sandbox, with what Casemate gives the interpreter
// (casemate/guest/support).
inline constexpr std::string_view kPythonSupportDirectory = "/casemate/python";

// The interpreter's part of a program's environment: PYTHONPATH is the support directory,
// PYTHONUNBUFFERED, so that what was printed before a kill is not lost, PYTHONNOUSERSITE, so that
// files an earlier call left in the home directory are not loaded at start-up, and
// PYTHONDONTWRITEBYTECODE, because a call's directory ends with it and a `__pycache__` would only
// lie among the program's files and on its quota. Entries of `requested` win, but its PYTHONPATH
// comes after ours.
std::map<std::string, std::string> codeact_environment(
    const std::map<std::string, std::string>& requested);

}  // namespace casemate
