#pragma once

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The keeper's whole life: makes sandboxes when its host asks (keeper_messages.h), reaps their
// agents, removes their control groups and state directories. One a host process, root, in the
// machine's namespaces, single-threaded; it outlives its host while a sandbox lives and ends when
// the host's socket closed and none does. What the host gave up, or had not published when its
// socket closed, is ended at once. The keeper's own death ends all its sandboxes.
//
// `host` is a seqpacket socket. Returns the exit status.
int run_keeper(sys::UniqueFd host) noexcept;

}  // namespace casemate::guest
