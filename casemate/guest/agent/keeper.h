#pragma once

#include <functional>
#include <memory>

#include "casemate/guest/agent/starter.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The keeper's whole life: makes sandboxes when its host asks (keeper_messages.h), reaps their
// agents, removes their control groups and state directories. One a host process, single-threaded,
// in the machine's namespaces but for its mounts and, unless it is root, its users (identity.h); it
// outlives its host while a sandbox lives and ends when the host's socket closed and none does.
// What the host gave up, or had not published when its socket closed, is ended at once. The
// keeper's own death ends all its sandboxes.
//
// Where it cannot begin it says why, before it ends, in an answer to no request (number 0).
//
// `host` is a seqpacket socket; `make_starter` is called once, in the keeper, and may throw
// `std::system_error`. Returns the exit status.
void report_no_start(int host, int error, const char* text) noexcept;
using MakeStarter = std::function<std::unique_ptr<Starter>()>;
int run_keeper(sys::UniqueFd host, const MakeStarter& make_starter) noexcept;

}  // namespace casemate::guest
