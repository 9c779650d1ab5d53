#pragma once

#include <string>
#include <vector>

namespace casemate::guest {

// Raises the loopback interface of the caller's network namespace. Throws `std::system_error`.
void raise_loopback();

// Gives the calling process a network namespace of its own, in which there is nothing but loopback.
// 198.18.0.0/15 and `addresses` (IPv4 or IPv6, as text) are loopback's too, and a port below 1024
// is nobody's privilege. The caller has every capability over the user namespace that it is in.
// Throws `std::system_error`. An IPv6 address is left out where the kernel has no IPv6.
void enter_network(const std::vector<std::string>& addresses);

}  // namespace casemate::guest
