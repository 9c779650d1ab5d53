#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "casemate/mcp/server.h"

namespace casemate::mcp::everything {

// The tools that the public conformance suites ask for by name: those that answer by themselves,
// and those that ask their client.
std::vector<ServedTool> tools();
std::vector<ServedTool> asking_tools();

// The suites' prompts, fixed resources and completion, and what a server that has them says of
// itself.
std::map<std::string, HostMethod, std::less<>> methods();
extern const char* const kCapabilities;

// A tool without parameters, or with a schema of them.
using Run = std::function<ToolResult(const boost::json::object&, const ToolCall&)>;
ServedTool tool(std::string name, std::string description, Run run, std::string parameters = {});

// A picture of one red point, and a sound of one silent sample, in base64.
extern const char* const kPicture;
extern const char* const kSound;

// A question to the client's user with a form of that schema.
boost::json::object form(std::string_view message, boost::json::object properties,
                         std::vector<std::string> required = {});

}  // namespace casemate::mcp::everything
