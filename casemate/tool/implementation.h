#pragma once

// What a `Tool` shares with its copies. For tool/ alone.

#include <boost/json/fwd.hpp>
#include <functional>
#include <string>

#include "casemate/base/log.h"
#include "casemate/tool/parameters.h"
#include "casemate/tool/tool.h"

namespace casemate {

class Tool::Implementation {
 public:
  std::string name;
  std::string description;
  ToolParameters parameters;
  ApprovalMode approval_mode = ApprovalMode::never_require;
  ToolDeclarations declarations;
  Log log;
  // Runs with arguments that fit. May throw anything.
  std::function<ToolResult(const boost::json::object& arguments, const ToolCall& call)> run;
};

}  // namespace casemate
