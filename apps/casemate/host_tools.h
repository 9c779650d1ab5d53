#pragma once

#include <memory>
#include <set>

#include "apps/casemate/host_tool_setting.h"
#include "casemate/base/log.h"
#include "casemate/core/vocabulary.h"
#include "casemate/host_tools/registry.h"

namespace casemate::app {

// Of one answer of a command, as JSON.
inline constexpr std::size_t kMaxAnswerBytes = 8 * 1024 * 1024;

// Commands as host functions: the arguments, a JSON object, go to the command's standard input, and
// what it prints has to be one JSON value. A status that is not 0, anything behind the value, and
// an answer over `kMaxAnswerBytes` are refusals; what it writes to standard error goes to `log`
// alone. A command is killed with its process group when its call's time is over or its run.
//
// Null when there are no tools. Throws `ConfigInvalid` (with its line) or `InvalidArgument` for a
// setting that the registry does not take, `HostToolNotDeclared` for one without a declaration
// where all have to have one, `HostToolIdentityNotAllowed`.
std::shared_ptr<HostToolRegistry> make_host_tools(const HostToolSettings& settings, const Log& log);

// The host's denial by the name of the tool that it meets, before the router's, which knows none.
// Throws `SandboxIdentityDenied`.
void refuse_denied_host_tools(const HostToolSettings& settings, const std::set<Identity>& denied);

}  // namespace casemate::app
