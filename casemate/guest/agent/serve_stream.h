#pragma once

#include <functional>

#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The guest's end of a stream that the host multiplexes (guest/stream/multiplexed_stream.h), for a
// process of its own, single-threaded, in which SIGPIPE may be ignored for good.
//
// For each control connection that the host opens, `connect` gives a stream socket at whose other
// end is `serve_call`: connected to the agent's socket, or one end of a pair whose other the clone
// of a call process took. An empty one, or `std::system_error`, refuses it. Runs no user's code and
// needs no rights beside what it was given; whoever may send it signals or trace it has all calls,
// so it belongs to the agent's user.
//
// A quarter of the descriptors that the process may have bounds how many connections the host is
// allowed, if that is less than 1,024; raise it before where it is low.
//
// Returns when the stream is over, with every connection closed, upon which calls end as when their
// host is gone: 0 after the host's goodbye, 1 for a host that vanished, broke the protocol or is of
// another build. Whoever started it then ends the sandbox.
int serve_stream(StreamEnd stream, const std::function<sys::UniqueFd()>& connect) noexcept;

}  // namespace casemate::guest
