#include "casemate/kinds/codeact/waiting.h"

#include <string_view>

#include "casemate/base/utf8.h"

namespace casemate::codeact {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
// The end record of a ZIP archive, after which only a comment may follow.
constexpr std::string_view kArchiveEnd = "PK\x05\x06";

// An encoding is named in the first or second line (PEP 263). A line ends in "\n", "\r" or "\r\n".
std::string_view first_two_lines(std::string_view code) {
  std::size_t end = 0;
  for (int line = 0; line < 2; ++line) {
    end = code.find_first_of("\r\n", end);
    if (end == std::string_view::npos) return code;
    end += code.substr(end).starts_with("\r\n") ? 2 : 1;
  }
  return code.substr(0, end);
}

}  // namespace

bool can_wait_for_its_file(const CodeactRequest& request) {
  const std::string_view code = request.code;
  return request.arguments.empty() && request.stdin_descriptor < 0 && is_valid_utf8(code) &&
         !code.starts_with(kByteOrderMark) &&
         first_two_lines(code).find("coding") == std::string_view::npos &&
         code.find(kArchiveEnd) == std::string_view::npos;
}

}  // namespace casemate::codeact
