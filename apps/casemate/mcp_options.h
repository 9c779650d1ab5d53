#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "apps/casemate/host_variable.h"
#include "apps/casemate/option_parser.h"
#include "apps/casemate/run_options.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/mcp/server.h"

namespace casemate::app {

// What `casemate mcp` was asked for, every value checked for itself.
struct McpOptions {
  // How sandboxes are made; scope and agent of the key. Its program, files and thread stay empty.
  RunOptions sandbox;
  // The directory whose files a model may ask for.
  std::optional<std::string> files;
  // Where outputs land, a directory a conversation.
  std::optional<std::string> out_dir;
  CodeactOutputs outputs = CodeactOutputs::none;
  bool unsafe_shared_store = false;
  mcp::Handles handles = mcp::Handles::no;
  std::chrono::milliseconds idle{};
  mcp::MediaTypes media_types = mcp::MediaTypes::by_extension;
};

// Throws `InvalidArgument`, one line naming the option, the value and what would be accepted.
McpOptions read_mcp_options(const ParsedLine& line, const HostVariable& host_variable);

}  // namespace casemate::app
