#pragma once

#include <string>
#include <string_view>

namespace casemate {

// A sentence that may quote a stranger, as logs and refusals are, made safe for one line on a
// terminal. As `escape_for_display` (utf8.h), but nothing is cut, a line break becomes a space, an
// invalid part U+FFFD, and a backslash stays, so that what was escaped before is not escaped again.
std::string one_line(std::string_view text);

}  // namespace casemate
