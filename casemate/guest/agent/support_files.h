#pragma once

#include <sys/types.h>

#include <span>
#include <string_view>

namespace casemate::guest {

// A file that the guest program carries for those it starts.
struct SupportFile {
  // Below /casemate: python/ for what interpreters import, also compiled; bin/ for programs.
  const char* path;
  mode_t mode;
  std::string_view content;
};

// What a sandbox finds in /casemate.
std::span<const SupportFile> support_files();

}  // namespace casemate::guest
