#pragma once

// The sockets of a tunnel: how one towards a server is made, bounded, and broken off.

#include <cstdint>

#include "casemate/egress/ip_address.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

// A non-blocking, close-on-exec connection that is being made; empty, with `error_number` set, when
// it cannot be begun. `buffer` bounds what the kernel holds of either direction (it doubles the
// number for its own book-keeping), and with it what moves in a round trip.
sys::UniqueFd begin_to_connect(const IpAddress& address, std::uint16_t port, std::uint64_t buffer,
                               int& error_number);
// What came of it, once it can be written to: 0 or an errno.
int pending_error(int socket);

// The same bound for what is sent by a socket that is there already.
void bound_sent(int socket, std::uint64_t buffer);
// So that no mark stands in the way of what comes behind it.
void take_urgent_data_inline(int socket);
// Resets a connection, so that the other end does not take it for ended; also while a process that
// was forked meanwhile holds it.
void break_off(int socket);

}  // namespace casemate
