#pragma once

#include "casemate/guest/agent/place.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A file server's whole life: becomes the program's user for good, then answers the requests of one
// files connection (protocol.h) in sequence until the host closes it or breaks the protocol.
// Returns the exit status. Call it in a process of its own; `parent_alive` is a pidfd of the
// process whose death must end this one too.
//
// Everything is done with the program's own rights and by descriptors that follow no link, so a
// program that swaps entries while this works reaches nothing that it could not reach itself.
int serve_files(sys::UniqueFd connection, sys::UniqueFd parent_alive, Place& place) noexcept;

}  // namespace casemate::guest
