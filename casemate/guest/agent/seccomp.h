#pragma once

#include <cstddef>

namespace casemate::guest {

// The system call filter for programs, compiled by the build (seccomp/generate.cc): an array of
// `sock_filter`. Which groups it refuses, and why, stands there.
extern const unsigned char kSeccompProgram[];
extern const std::size_t kSeccompProgramBytes;

// Installs it for this process for good; needs no_new_privs. Async-signal-safe. Returns 0 or an
// errno.
int install_seccomp_filter() noexcept;

}  // namespace casemate::guest
