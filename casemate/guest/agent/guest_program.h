#pragma once

#include <span>
#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// The static guest program, as built with this library.
std::span<const char> guest_program();

// SHA-256 of it, 64 hex digits: part of what a sandbox was made with.
const std::string& guest_build_id();

// A sealed memory file that holds the program, close-on-exec, to be executed through
// /proc/self/fd. Throws `std::system_error`.
sys::UniqueFd make_guest_program_file();

}  // namespace casemate::guest
