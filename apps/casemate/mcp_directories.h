#pragma once

// What must not stand in the directories that `casemate mcp` shares with programs.

#include <string>
#include <vector>

#include "apps/casemate/mcp_options.h"

namespace casemate::app {

// A file that the server is run by, and the option that named it.
struct ServerFile {
  std::string option;
  std::string path;
};

// Throws `InvalidArgument` where --files and --out-dir overlap, unless that was accepted, also
// while
// --out-dir is not there yet; and where one of `files` lies in either of them: programs could read
// a secret there, or leave a file that is taken for it. Links are followed; a hard link elsewhere
// is not seen. Makes nothing.
void check_directories(const McpOptions& options, const std::vector<ServerFile>& files);

}  // namespace casemate::app
