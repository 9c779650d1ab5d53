#include "casemate/mcp/served_test.h"

#include <stdexcept>

#include "casemate/core/errors.h"
#include "casemate/mcp/conversation.h"
#include "casemate/tool/refusals.h"

namespace casemate::mcp {
namespace {

std::string schema(std::string_view properties) {
  return R"({"type":"object","additionalProperties":false,"properties":{)" +
         std::string(properties) + "}}";
}

Tool tool(std::string name, std::string_view properties,
          std::function<ToolResult(const json::object&, const ToolCall&)> run) {
  return make_tool({.name = std::move(name),
                    .description = "for tests",
                    .parameters = schema(properties),
                    .run = std::move(run)});
}

ToolResult echo(const json::object& arguments, const ToolCall&) {
  return {.text = std::string(arguments.at("text").get_string())};
}

ToolResult steps(const json::object& arguments, const ToolCall& call) {
  for (std::int64_t step = 0; step < arguments.at("count").get_int64(); ++step) {
    if (call.progress) call.progress("step");
    if (call.on_output) call.on_output(OutputStream::out, std::string_view("printed"));
  }
  return {.text = "done"};
}

ToolResult wait(const json::object&, const ToolCall& call) {
  std::mutex mutex;
  std::condition_variable_any changed;
  if (call.progress) call.progress("waiting");
  std::unique_lock lock(mutex);
  changed.wait(lock, call.control.stop, [] { return false; });
  return {.text = "stopped"};
}

ToolResult land(const json::object& arguments, const ToolCall&) {
  const std::string name(arguments.at("name").get_string());
  ToolResult result;
  result.text = "Saved:\n- " + name;
  result.structured = R"({"artifacts":[{"name":"x","bytes":5}]})";
  result.artifacts.push_back({name, name, "/host/" + name, 5});
  return result;
}

ToolResult where(const json::object&, const ToolCall&) {
  return {.text = current_conversation().value_or("nowhere")};
}

}  // namespace

ServerOptions test_options() {
  ServerOptions options;
  options.name = "test";
  options.version = "1.2.3";
  options.tools = {
      {tool("echo", R"("text":{"type":"string"})", echo), OpenWorld::no},
      {tool("steps", R"("count":{"type":"integer"})", steps)},
      {tool("wait", "", wait)},
      {tool("fail", "",
            [](const json::object&, const ToolCall&) -> ToolResult {
              throw std::runtime_error("a secret of the host");
            })},
      {tool("land", R"("name":{"type":"string"})", land)},
      {tool("where", "", where)},
  };
  options.read_artifact = [](const LandedArtifact& artifact, std::uint64_t) -> std::string {
    if (artifact.name == "gone.txt") throw NoSuchSandbox("gone from /host");
    if (artifact.name == "bytes.txt") return "\xff\xfe";
    return "hello";
  };
  return options;
}

}  // namespace casemate::mcp
