#pragma once

#include <chrono>
#include <optional>

#include "casemate/core/control.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {

// Takes a lease on the sandbox in that directory: it lives at least as long as the connection, and
// `keep_idle` longer if that is the last to close; absent, as long as an earlier lease wished.
// Absent when it is dead, or does not answer within five seconds. Throws `SandboxTimeout`,
// `SandboxCancelled` by `control`, `SandboxUnavailable` when a socket cannot be had.
std::optional<sys::UniqueFd> take_lease(int directory,
                                        std::optional<std::chrono::milliseconds> keep_idle,
                                        const CallControl& control);

// Gives a lease another `keep_idle`. Never throws: a sandbox that has ended needs none.
void change_keep_idle(int lease, std::chrono::milliseconds keep_idle) noexcept;

// Whether the sandbox of a lease lives, asked of the connection alone: its end closes it. Never
// throws.
bool lease_holds(int lease) noexcept;

// The agent that listens in that directory, by its number in this process's pid namespace; absent
// where it has none there, or is dead. Asked of a connection of its own: the first lease of a
// sandbox began as a pair of sockets of the host's and names the host. Never throws.
std::optional<int> agent_of(int directory) noexcept;

// Whether an agent listens there. Throws `std::system_error`.
bool is_alive(int directory);

// Ends the agent, and with it every process of its sandbox, and waits until the kernel has reaped
// them. Returns whether one lived. Throws `std::system_error`, also when its end is not seen.
bool kill_agent(int directory);

}  // namespace casemate::local
