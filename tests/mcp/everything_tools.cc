#include "tests/mcp/everything_tools.h"

#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

namespace casemate::mcp::everything {
namespace {

// Of the suites: time enough for a client to see one message before the next.
constexpr std::chrono::milliseconds kStep{50};

// The suites ask for steps that lie apart; a stop ends the wait.
void pause(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, kStep, [] { return false; });
}

ServedTool tool(std::string name, std::string description,
                std::function<ToolResult(const boost::json::object&, const ToolCall&)> run) {
  return {
      .tool = make_tool(
          {.name = std::move(name), .description = std::move(description), .run = std::move(run)}),
      .open_world = OpenWorld::no};
}

// Three steps, and so three messages of progress and of the log.
ToolResult in_steps(const ToolCall& call, const char* first, const char* second,
                    const char* third) {
  call.progress(first);
  pause(call.control.stop);
  call.progress(second);
  pause(call.control.stop);
  call.progress(third);
  return {.text = "Done in three steps."};
}

constexpr const char* kNewSchema = R"({
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"},
                                                          "city": {"type": "string"}}}},
  "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                 "phone": {"type": "string"}, "email": {"type": "string"}},
  "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
  "additionalProperties": false
})";

}  // namespace

std::vector<ServedTool> tools() {
  std::vector<ServedTool> tools;
  tools.push_back(tool("test_simple_text", "Answers with a text.", [](const auto&, const auto&) {
    return ToolResult{.text = "This is a simple text response for testing."};
  }));
  tools.push_back(
      tool("test_error_handling", "Always fails.", [](const auto&, const auto&) -> ToolResult {
        throw std::runtime_error("This tool intentionally returns an error for testing");
      }));
  tools.push_back(tool("test_tool_with_progress", "Tells of its progress.",
                       [](const auto&, const ToolCall& call) {
                         return in_steps(call, "begun", "half done", "all done");
                       }));
  tools.push_back(tool("test_tool_with_logging", "Writes to the client's log.",
                       [](const auto&, const ToolCall& call) {
                         return in_steps(call, "Tool execution started", "Tool processing data",
                                         "Tool execution completed");
                       }));
  // The suite lets a server close the stream meanwhile; ours keeps it open.
  tools.push_back(
      tool("test_reconnection", "Answers after a while.", [](const auto&, const ToolCall& call) {
        return in_steps(call, "begun", "half done", "all done");
      }));
  tools.push_back(tool("test_logging_tool", "Writes to the client's log when asked for one.",
                       [](const auto&, const ToolCall& call) {
                         return in_steps(call, "begun", "half done", "all done");
                       }));
  tools.push_back(
      {.tool =
           make_tool({.name = "json_schema_2020_12_tool",
                      .description = "Has a schema with newer keywords.",
                      .parameters = kNewSchema,
                      .run = [](const auto&, const auto&) { return ToolResult{.text = "fits"}; }}),
       .open_world = OpenWorld::no});
  return tools;
}

}  // namespace casemate::mcp::everything
