#pragma once

#include <span>
#include <string_view>

namespace casemate::guest {

// A file of casemate/guest/support/, or one compiled, carried in the guest program.
struct SupportFile {
  // Relative to /casemate/python; in it or in its __pycache__.
  const char* name;
  std::string_view content;
};

// What a sandbox finds in /casemate/python.
std::span<const SupportFile> support_files();

}  // namespace casemate::guest
