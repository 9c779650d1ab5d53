#pragma once

// Waiting: poll with an absolute time, and an event that another thread can raise.

#include <poll.h>

#include <chrono>
#include <optional>
#include <span>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

using SteadyTime = std::chrono::steady_clock::time_point;

// Waits until a descriptor is ready or `until` has come (absent: without end); entries with a
// negative descriptor are skipped. Interrupted waits go on. Returns how many are ready, 0 when the
// time came first. Throws `std::system_error`.
int poll_until(std::span<pollfd> entries, std::optional<SteadyTime> until);

// A non-blocking eventfd, readable once raised.
UniqueFd make_event();
// Raises it; safe from any thread and from a signal handler.
void raise_event(int event) noexcept;

}  // namespace casemate::sys
