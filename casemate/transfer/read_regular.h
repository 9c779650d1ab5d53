#pragma once

// How stores read a host file that was opened for them. Not for users of the library.

#include <cstdint>
#include <string>
#include <string_view>

#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"

namespace casemate {

// Flags to open a file with before it is known to be a regular one: a FIFO does not wait for its
// writer, a terminal does not become ours.
extern const int kOpenToLook;

// The refusal of a file of more than `max_bytes`.
SandboxTransferCapExceeded over_read_cap(std::string_view subject, std::uint64_t max_bytes);

// The bytes of the regular file behind `fd`. `subject` names it in refusals, escaped by this
// function. Throws as `FileStore::read` says.
std::string read_regular(const sys::UniqueFd& fd, std::string_view subject,
                         std::uint64_t max_bytes);

// What failed about `subject`, with the errno. ENXIO stands for "no regular file" and becomes
// EINVAL.
SandboxFileError file_refusal(std::string_view subject, int error_number);

}  // namespace casemate
