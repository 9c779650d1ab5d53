#pragma once

#include <cstdint>

namespace casemate::guest {

// What a place with a kernel of its own mounts, by the calls that gVisor has (those by descriptor
// it has not). Each in a mount namespace that was just made; throws `std::system_error`.

// /tmp and /dev/shm of one call, each of at most so many bytes.
void mount_call_directories(std::uint64_t bytes);

// /proc of the pid namespace that the caller is the first process of. What is to be known about the
// caller is covered: that kernel shows the memory map, the environment and the descriptors of every
// process to everybody.
void mount_own_processes();

// Removes from /dev what is no harmless device: that kernel's own ways to file systems and networks
// of programs, and what is mounted there beside terminals and shared memory. Where the caller has
// no mount namespace that was just made, that is gone for all of the container.
void remove_devices();

}  // namespace casemate::guest
