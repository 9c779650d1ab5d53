#pragma once

#include <sys/types.h>

namespace casemate::guest {

// Where there is no pid namespace for an exec, who is a child subreaper finds all that it started
// below it, by the parents that /proc tells.

// What this process is the ancestor of stays below it, however it is orphaned. Throws
// `std::system_error`.
void become_subreaper();

// Whether this process has children, ended ones that were not waited for included.
bool has_children() noexcept;

// Sends SIGKILL to every descendant that /proc has now. What forks meanwhile may be missed: to be
// repeated while there are children. Throws `std::bad_alloc`.
void kill_descendants();

}  // namespace casemate::guest
