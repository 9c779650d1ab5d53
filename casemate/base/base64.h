#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace casemate {

// RFC 4648, section 4: with padding, without line ends.
std::string encode_base64(std::string_view bytes);

// Exactly such text, or nothing: no white space, padding where it belongs, unused bits zero.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace casemate
