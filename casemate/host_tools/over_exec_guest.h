#pragma once

// What the file transport puts into the guest: the module that programs import and the script that
// starts the program. Neither holds anything that a model wrote. Neither is larger than the router
// counts with: `kHostToolModuleBytes` and `kHostToolLauncherBytes`.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/host_tool_fold.h"
#include "casemate/host_tools/over_exec_layout.h"

namespace casemate {

struct OverExecModule {
  // The registry's; those that can be written after a dot can be called so.
  std::vector<std::string> names{};
  // The registry's cap. A call that the host will not read any more is then refused by the module
  // itself; without it, it waits for `call_timeout`.
  std::optional<std::uint64_t> max_calls{};
  // How long a call waits for the host's answer before it fails in the program.
  std::chrono::nanoseconds call_timeout = std::chrono::seconds(300);
};

// Source of `casemate_tools` for `GuestRunLayout::module`. To the program it is the module that the
// channel has: `call(name, /, **arguments)`, a function for each name, `HostToolError`. Any thread
// and any child process of the program may call; each call takes the lowest number that is free.
// One of a process that is killed between taking its number and writing its request holds up the
// later ones. Needs Python 3.8 or later. Throws `InvalidArgument` for a `call_timeout` that is not
// above 0 and for names that make it too large.
std::string over_exec_module(const OverExecModule& module);

// Source of `GuestRunLayout::launcher`, for a POSIX sh with mkdir, mv and nohup, and setsid where
// there is one. It starts `interpreter` (found on the guest's PATH) with the program, in the work
// directory, and returns; with setsid it says `kOverExecSessionLine` on its own output. What the
// program inherits as PYTHONPATH has the transport's directory first and nothing else of the run's.
// What the run shares, in the work directory, can be imported once the module is loaded. Words that
// the launcher is given are the program's.
// Throws `InvalidArgument` for an interpreter that is empty or has a NUL, and when paths make it
// too large.
std::string over_exec_launcher(const GuestRunLayout& layout, std::string_view interpreter);

inline constexpr std::string_view kOverExecSessionLine = "casemate-tools: session";

}  // namespace casemate
