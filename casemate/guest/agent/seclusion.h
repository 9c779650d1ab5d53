#pragma once

#include <cstdint>
#include <string>

namespace casemate::guest {

// Where sockets may be bound for a moment after `seclude`; of the new user alone.
inline constexpr char kSeclusionSockets[] = "/sockets";

// Takes from this process, for good, what a fault in it could give to somebody else: its root is a
// small empty file system (with `kSeclusionSockets`, and a /proc that shows this process only), its
// network has no interface that is up, it is user and group `user` and `group`, in no other group,
// without a capability or a way to get one, and under the filter of system calls that programs
// have. What is open stays open: a descriptor of a directory would lead out.
//
// Called by root of the machine, single-threaded, in a mount namespace of its own in which nothing
// is shared with others, as first process of a pid namespace. What was to be had of the kernel by
// the former user is forgotten (`sys::die_with_parent`). Throws `std::system_error`.
void seclude(std::uint32_t user, std::uint32_t group);

// Has a descriptor kept, for the lock on it, by a process that is this one's child and hears
// nobody. Ends with the pid namespace. Throws `std::system_error`.
void keep_apart(int descriptor);

}  // namespace casemate::guest
