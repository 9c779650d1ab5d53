#pragma once

#include "casemate/guest/agent/place.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The call process's whole life: speaks the control connection (see protocol.h), makes the call's
// scope, clones an exec-init or a file server for each attached connection, reaps them, and takes
// everything down when the host says so or closes the connection. Returns the exit status for
// `_exit`; never throws.
//
// Call it in a process of its own, single-threaded, that has no other children and may change its
// signal mask and dispositions for good. Descriptors that were open before are closed in the
// programs it starts, not in the exec-init or the file server: keep none that matter.
int serve_call(sys::UniqueFd control, Place& place) noexcept;

}  // namespace casemate::guest
