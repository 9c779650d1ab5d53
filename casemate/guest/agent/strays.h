#pragma once

#include <sys/types.h>

#include <functional>

namespace casemate::guest {

// What a container's runtime that failed or was killed had started (runc's first process waits for
// its runtime for ever, crun's worker goes on without it): an orphan is this process's child. A
// host has one container made at a time, so what nobody here knows is of that one.

// Waits for the end of a child that ends.
void reap(pid_t pid);

// Ends all children, and theirs, that are not known.
void end_strays(const std::function<bool(pid_t)>& is_known);

// Of the children that have ended takes away those before the first that somebody awaits, who hears
// of it in a moment: what runtimes started and did not live to wait for.
void reap_strays(const std::function<bool(pid_t)>& is_awaited);

}  // namespace casemate::guest
