#pragma once

#include <cstdint>
#include <string>

namespace casemate::app {

// The bytes of the program at a host path ("-": of standard input), unchanged. A pipe is read to
// its end. Throws `InvalidArgument` naming the path when it cannot be read or is a directory, and
// `SandboxTransferCapExceeded` when it holds more than `max_bytes`; no more than that and one byte
// is read.
std::string read_program(const std::string& path, std::uint64_t max_bytes);

}  // namespace casemate::app
