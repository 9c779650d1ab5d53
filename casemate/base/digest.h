#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace casemate {

// SHA-256 of `bytes` as 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

// `count` random bytes from the kernel as 2*count hex digits. Throws std::system_error.
std::string random_hex(std::size_t count);

}  // namespace casemate
