#pragma once

// What those say whom a keeper starts.

#include <sys/types.h>

#include <string>

#include "casemate/guest/agent/agent.h"

namespace casemate::guest {

// As recv, without waiting; a sender's number as the kernel knows it where that is asked for.
ssize_t receive_report(int socket, AgentReport& report, pid_t& sender);

// The last line that a runtime printed to that file, which says why it failed.
std::string last_words(int said);

}  // namespace casemate::guest
