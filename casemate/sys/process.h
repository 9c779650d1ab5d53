#pragma once

// Processes beyond what POSIX has: clones with namespaces, and process descriptors, which name one
// process for good where a number may name another tomorrow.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>

#include "casemate/sys/poll.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

// Like fork, with `namespace_flags` (CLONE_NEW*): returns the child's pid, 0 in the child. The
// child gets a copy of the whole address space, so this is for small single-threaded programs
// only; no pthread_atfork handler runs. Throws `std::system_error`.
pid_t clone_process(std::uint64_t namespace_flags);

// A close-on-exec descriptor for a process; readable once it has ended. Throws
// `std::system_error`; ESRCH: there is none.
UniqueFd open_pid(pid_t pid);

// Quiet when the process has ended. Throws `std::system_error`.
void send_signal(int pid_descriptor, int signal);

// Waits until the process ended; false when `until` came first.
bool wait_ended(int pid_descriptor, std::optional<SteadyTime> until);

// Whether the process has ended, without waiting.
bool has_ended(int pid_descriptor);

// The number under which the mounted /proc has the process. It is another one than `getpid` and
// `fork` tell where /proc was mounted for another pid namespace. Absent where that /proc does not
// have it. Good for as long as the process exists. Throws `std::system_error` without a /proc.
std::optional<pid_t> number_in_proc(int pid_descriptor);

// Has the kernel kill this process when its parent (thread) ends. The kernel forgets it when user
// or group ids change: call it after that. `parent` is a descriptor for the parent, opened before
// this process was made: a parent that ended in between is noticed and this process exits.
void die_with_parent(int parent);

// Keeps this process from being traced, and its /proc entries from being read, by processes of the
// same user. An execve undoes it.
void make_undumpable();

// Closes `from` and every higher descriptor.
void close_from(int from);

// Closes every descriptor that is not in `kept`.
void close_all_except(std::span<const int> kept);

}  // namespace casemate::sys
