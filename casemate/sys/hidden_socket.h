#pragma once

// Listening Unix sockets without a name: who holds the address may connect, nobody else can.

#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

// Gives an unbound stream socket an address that no path leads to, and returns that (an O_PATH
// descriptor of the socket's file, which is in no directory any more). It does not keep the socket:
// once nobody listens, connecting fails. Needs /proc. For a moment there is a directory of mode 700
// in `directory`, which this user must be able to write to. Throws `std::system_error`.
UniqueFd bind_hidden(int socket, const std::string& directory);

// A connection, close-on-exec and non-blocking; empty when nobody listens or the one who does has
// as many waiting as it may. Throws `std::system_error` for what is this process's own trouble.
UniqueFd connect_hidden(int address);

}  // namespace casemate::sys
