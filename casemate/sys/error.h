#pragma once

#include <string>
#include <system_error>

namespace casemate::sys {

// Throws `std::system_error` for the current errno; `what` names the call that failed and its
// subject. This is the error type of everything in sys/: the layers above turn it into refusals.
[[noreturn]] void throw_errno(const std::string& what);

// The same for a given errno.
[[noreturn]] void throw_error(int error_number, const std::string& what);

}  // namespace casemate::sys
