#pragma once

// Host tool calls for providers that have exec and files and nothing else: the program is left
// running, and the host looks for files that it writes. Slow by nature, a few operations of the
// provider for each call and a look every `poll_interval`; where there is a channel, use that.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/core/exec.h"
#include "casemate/host_tools/over_exec_layout.h"
#include "casemate/host_tools/over_exec_provider.h"
#include "casemate/host_tools/over_exec_stop.h"
#include "casemate/host_tools/run.h"

namespace casemate {

struct OverExecOptions {
  // From the start of the launcher's upload to the program's end, calls served meanwhile included.
  // Above 0, at most seven days.
  std::chrono::nanoseconds timeout{0};
  // Between two looks. Above 0.
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds(200);
  // As on the guest's PATH, or absolute.
  std::string interpreter = "python3";
  // Of the program, behind its path.
  std::vector<std::string> arguments{};
  // As in `ExecRequest`; PYTHONPATH gets the transport's directory in front.
  std::map<std::string, std::string> environment{};
  // Of each stream; what was kept is head and tail.
  std::uint64_t capture_bytes = kDefaultCaptureBytes;
  Log log{};
};

struct OverExecResult {
  // The program's. `exited` is what the guest says: it can write that mark itself, so
  // `stopped_known` is false but for a program that was never started. A program that was ended by
  // a signal has 128 and its number as exit code, as the shell that watched it says. Processor time
  // and memory are not known. When the launcher failed it is the launcher's.
  ExecResult result;
  // What was done to stop it; absent when it had ended, by its own account, before that.
  std::optional<ProgramStop> stop{};
  // The host's remarks for whoever reads the streams; never a part of them.
  std::vector<std::string> notes{};
};

// Largest mark that is read: an exit code or a process number.
inline constexpr std::uint64_t kOverExecMarkBytes = 32;

// How long past `timeout` things may go on: an answer may be written; the mark and the streams be
// looked at once more; the process numbers read; the signal sent; the transport's files removed.
inline constexpr std::chrono::seconds kOverExecAnswerGrace{2};
inline constexpr std::chrono::seconds kOverExecLastLookGrace{2};
inline constexpr std::chrono::seconds kOverExecNumbersGrace{2};
inline constexpr std::chrono::seconds kOverExecSignalGrace{2};
inline constexpr std::chrono::seconds kOverExecCleanupGrace{10};
// 18 s.
inline constexpr std::chrono::seconds kOverExecMostOvertime =
    kOverExecAnswerGrace + kOverExecLastLookGrace + kOverExecNumbersGrace + kOverExecSignalGrace +
    kOverExecCleanupGrace;

// Starts the program of `layout`, answers its calls by `run`, and waits for its end. Blocks.
//
// Before it, the caller has written `layout.program()` and `layout.module()` into a directory that
// is new; afterwards `work/` is there, for the caller to collect from, and `host_tools/` is not.
//
// Requests are read in the order of their numbers, one at a time, each answered before the next; a
// request that the program abandoned is passed over. After one more than the registry's cap (the
// refusals that say so among them) no request is read. A program that ends while a function of the
// host's runs is not kept waiting for it; neither is `timeout`. Such a function is told to stop
// when the run is closed.
//
// `options.timeout` gives the outcome `timed_out`, `control.stop` gives `cancelled`; both carry
// what was printed until then, as far as it could be read. At most `kOverExecMostOvertime` passes
// after either, if the provider holds its deadlines. What the two streams hold together may be as
// much as the answers of the run; one that is over is left out, counted as missing, and noted.
//
// The transport's files are the program's to spoil, by links, directories, modes or removal. That
// may cost it its calls, what it printed, and, where its end can be seen no more, all of `timeout`;
// it is noted, and never a failure.
//
// Throws `InvalidArgument` for options out of range, before anything was touched. What the provider
// fails with (with `control.deadline`: `SandboxTimeout`) passes through, after an attempt to stop
// the program and to clean up.
OverExecResult host_tool_calls_over_exec(const ExecAndFiles& guest, HostToolRun& run,
                                         const GuestRunLayout& layout,
                                         const OverExecOptions& options,
                                         const CallControl& control);

// Removes all of the run's directory by the guest's `rm`. False means that it may still be there
// and the sandbox must be disposed. Throws `InvalidArgument` for a timeout that is not above 0.
bool reclaim_run(const ExecAndFiles& guest, const GuestRunLayout& layout,
                 std::chrono::nanoseconds timeout = std::chrono::seconds(30),
                 const CallControl& control = {});

}  // namespace casemate
