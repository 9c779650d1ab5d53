#pragma once

#include <string>
#include <string_view>

namespace casemate {

// The text as one word of a line that a person gives to a shell; as it stands where no shell could
// take it for anything else.
std::string shell_word(std::string_view text);

}  // namespace casemate
