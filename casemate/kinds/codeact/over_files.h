#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/sandbox.h"
#include "casemate/host_tools/registry.h"
#include "casemate/host_tools/run.h"
#include "casemate/kinds/codeact/run.h"

namespace casemate::codeact {

// Puts the program and the module that it imports into `call`, for a backend where host tool calls
// travel as files (host_tools/over_exec.h). Refuses standard input, which nothing forwards there.
void stage_over_files(Call& call, const HostToolRegistry& registry, const CodeactRequest& request,
                      const CallControl& control);

// The program that was staged, begun by `Process::wait`, which also answers its calls. What it
// prints is heard once it has ended. What there is to say beside the streams is appended to
// `notes`. The call, the run, the wiring, the request and the notes are borrowed.
std::unique_ptr<Process> program_over_files(Call& call, HostToolRun& run,
                                            const CodeactWiring& wiring,
                                            const CodeactRequest& request,
                                            std::string_view interpreter,
                                            std::vector<std::string>& notes);

}  // namespace casemate::codeact
