#pragma once

// A function that a model may call, as a host's agent framework or an MCP server sees it.

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/log.h"
#include "casemate/core/control.h"
#include "casemate/core/exec.h"
#include "casemate/transfer/sink.h"

namespace casemate {

// Whether a person has to agree before each invocation. The host asks; a tool only says.
enum class ApprovalMode : std::uint8_t { never_require, always_require };

// The wire spelling, a string literal.
std::string_view to_string(ApprovalMode value);

// Information-flow declarations by their wire names ("source_integrity",
// "max_allowed_confidentiality"). The values are the host's own vocabulary.
using ToolDeclarations = std::map<std::string, std::string>;

// One invocation's bounds and listeners.
struct ToolCall {
  CallControl control{};
  // Told what goes on, one short phrase a step ("running the program"). May be empty.
  std::function<void(std::string_view)> progress{};
  // Receives what guest code prints, as it comes. May be empty. An exception from either listener
  // ends the invocation and reaches the caller of `invoke`.
  OutputCallback on_output{};
};

struct ToolResult {
  // For the model; valid UTF-8.
  std::string text{};
  // The same for a program: one JSON object as text, or empty. Holds no host path.
  std::string structured{};
  // No program ran: a refusal, or a sandbox that is not to be had. A program that failed is an
  // ordinary result.
  bool is_error = false;
  // What landed, for the host: a `handle` in here is never part of the text above.
  std::vector<LandedArtifact> artifacts{};
};

// A tool, ready to be registered; made by `sandboxed_tool` or `make_tool`. Copies share one
// implementation. May be invoked from several threads at once; it keeps alive what it was made with
// (router, store, sink).
class Tool {
 public:
  class Implementation;
  explicit Tool(std::shared_ptr<const Implementation> implementation);

  const std::string& name() const;
  // For the model, verbatim.
  const std::string& description() const;
  // JSON Schema of the arguments, as text: an object that allows no other property.
  const std::string& parameters() const;
  ApprovalMode approval_mode() const;
  const ToolDeclarations& declarations() const;

  // Runs the tool. `arguments` is a JSON object as text. Never throws a refusal: each becomes the
  // model's sentence here and nowhere else, with provider detail in the log only. Throws only what
  // a listener of `call` threw.
  ToolResult invoke(std::string_view arguments, const ToolCall& call) const;

 private:
  std::shared_ptr<const Implementation> implementation_;
};

// A function of the host's own that needs no sandbox. Every field has an initialiser, so that a
// host that names only some is not warned of the rest.
struct ToolParts {
  std::string name{};
  std::string description{};
  // JSON Schema as text; the keywords that `ToolParameters` knows.
  std::string parameters = R"({"type": "object", "additionalProperties": false})";
  ApprovalMode approval_mode = ApprovalMode::never_require;
  ToolDeclarations declarations{};
  // Called with arguments that fit, from several threads at once. What it throws becomes the
  // model's sentence as for every tool: write a refusal that a model may read as
  // `ModelFacingRefusal` (tool/refusals.h).
  std::function<ToolResult(const boost::json::object& arguments, const ToolCall& call)> run{};
  Log log{};
};

// Throws `InvalidArgument` for a schema that is not understood, or without `run`.
Tool make_tool(ToolParts parts);

}  // namespace casemate
