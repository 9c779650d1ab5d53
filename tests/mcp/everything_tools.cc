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

// A tool whose result consists of these blocks.
ServedTool showing(std::string name, std::string description, boost::json::array content) {
  ServedTool served = tool(std::move(name), std::move(description),
                           [](const auto&, const auto&) { return ToolResult{.text = "shown"}; });
  served.content = [content = std::move(content)](const ToolResult&) { return content; };
  return served;
}

}  // namespace

const char* const kPicture =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
const char* const kSound = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

ServedTool tool(std::string name, std::string description, Run run, std::string parameters) {
  ToolParts parts{
      .name = std::move(name), .description = std::move(description), .run = std::move(run)};
  if (!parameters.empty()) parts.parameters = std::move(parameters);
  return {.tool = make_tool(std::move(parts)), .open_world = OpenWorld::no};
}

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
  tools.push_back(tool(
      "json_schema_2020_12_tool", "Has a schema with newer keywords.",
      [](const auto&, const auto&) { return ToolResult{.text = "fits"}; }, kNewSchema));
  const boost::json::object picture{
      {"type", "image"}, {"data", kPicture}, {"mimeType", "image/png"}};
  tools.push_back(showing("test_image_content", "Shows a picture.", {picture}));
  tools.push_back(showing("test_audio_content", "Plays a sound.",
                          {{{"type", "audio"}, {"data", kSound}, {"mimeType", "audio/wav"}}}));
  tools.push_back(showing("test_embedded_resource", "Shows a whole resource.",
                          {{{"type", "resource"},
                            {"resource",
                             {{"uri", "test://embedded-resource"},
                              {"mimeType", "text/plain"},
                              {"text", "This is an embedded resource content."}}}}}));
  tools.push_back(showing("test_multiple_content_types", "Shows several things.",
                          {{{"type", "text"}, {"text", "Multiple content types test:"}},
                           picture,
                           {{"type", "resource"},
                            {"resource",
                             {{"uri", "test://mixed-content-resource"},
                              {"mimeType", "application/json"},
                              {"text", R"({"test":"data","value":123})"}}}}}));
  return tools;
}

}  // namespace casemate::mcp::everything
