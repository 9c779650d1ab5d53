#pragma once

#include <cstdint>

namespace casemate::sys {

// The highest value of a resource limit (RLIMIT_*) that this process, or one that it starts, can
// give itself: any for root, RLIMIT_NOFILE up to the kernel's fs.nr_open; the hard limit for who
// lacks CAP_SYS_RESOURCE, also within a user namespace that is not the machine's own. RLIM_INFINITY
// is no limit. 0 where it cannot be told.
std::uint64_t most_of(int resource) noexcept;

// Sets a limit of this process, or comes as near to it as the hard limit lets it.
void set_limit_as_near(int resource, std::uint64_t soft, std::uint64_t hard) noexcept;

}  // namespace casemate::sys
