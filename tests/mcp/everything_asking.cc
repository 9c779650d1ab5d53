// Tools that ask their client in the middle of a call.

#include <boost/json.hpp>
#include <string>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/mcp/ask_client.h"
#include "tests/mcp/everything_tools.h"

namespace casemate::mcp::everything {
namespace {

namespace json = boost::json;

constexpr const char* kElicit = "elicitation/create";
constexpr const char* kSample = "sampling/createMessage";

json::object sampling(std::string_view prompt, int max_tokens) {
  return {{"messages", {{{"role", "user"}, {"content", {{"type", "text"}, {"text", prompt}}}}}},
          {"maxTokens", max_tokens}};
}

ToolResult nobody() { return {.text = "The client cannot be asked.", .is_error = true}; }

std::string one_string(std::string_view name) {
  return R"({"type":"object","additionalProperties":false,"required":[")" + std::string(name) +
         R"("],"properties":{")" + std::string(name) + R"(":{"type":"string"}}})";
}

// Asks one thing, and says what came back.
ServedTool asks(std::string name, std::string key, std::string method, json::object params) {
  return tool(std::move(name), "Asks its client one thing.",
              [key = std::move(key), method = std::move(method), params = std::move(params)](
                  const json::object&, const ToolCall&) {
                const auto answer = ask_client(key, method, params);
                if (!answer) return nobody();
                return ToolResult{.text = "state-ok: " + serialise_json(*answer)};
              });
}

json::object text_field() { return {{"type", "string"}}; }

json::object defaults() {
  return {
      {"name", {{"type", "string"}, {"default", "John Doe"}}},
      {"age", {{"type", "integer"}, {"default", 30}}},
      {"score", {{"type", "number"}, {"default", 95.5}}},
      {"status",
       {{"type", "string"}, {"enum", {"active", "inactive", "pending"}}, {"default", "active"}}},
      {"verified", {{"type", "boolean"}, {"default", true}}}};
}

json::object choices() {
  const auto titled = [](const char* first, const char* second) {
    return json::array{json::object{{"const", "value1"}, {"title", first}},
                       json::object{{"const", "value2"}, {"title", second}}};
  };
  const json::array plain{"option1", "option2", "option3"};
  return {
      {"untitledSingle", {{"type", "string"}, {"enum", plain}}},
      {"titledSingle", {{"type", "string"}, {"oneOf", titled("First Option", "Second Option")}}},
      {"legacyEnum",
       {{"type", "string"},
        {"enum", json::array{"opt1", "opt2", "opt3"}},
        {"enumNames", json::array{"Option One", "Option Two", "Option Three"}}}},
      {"untitledMulti", {{"type", "array"}, {"items", {{"type", "string"}, {"enum", plain}}}}},
      {"titledMulti",
       {{"type", "array"},
        {"items", json::object{{"anyOf", titled("First Choice", "Second Choice")}}}}}};
}

// Says what the client's user did, as the suites read it.
ServedTool elicits(std::string name, json::object properties) {
  return tool(
      std::move(name), "Asks the user.",
      [properties = std::move(properties)](const json::object&, const ToolCall&) {
        const auto answer = ask_client("form", kElicit, form("Please fill in", properties));
        if (!answer) return nobody();
        return ToolResult{.text = "Elicitation completed: action=" +
                                  serialise_json(answer->at("action")) + ", content=" +
                                  serialise_json(answer->contains("content") ? answer->at("content")
                                                                             : json::value())};
      });
}

// All that the client can be asked, at once.
ServedTool asks_several(std::string name) {
  return tool(std::move(name), "Asks several things.", [](const json::object&, const ToolCall&) {
    const auto user = ask_client("user_name", kElicit,
                                 form("What is your name?", {{"name", text_field()}}, {"name"}));
    const auto greeting = ask_client("greeting", kSample, sampling("Generate a greeting", 50));
    const auto roots = ask_client("client_roots", "roots/list", {});
    if (!user && !greeting && !roots) return nobody();
    return ToolResult{.text = "all was answered"};
  });
}

}  // namespace

json::object form(std::string_view message, json::object properties,
                  std::vector<std::string> required) {
  json::object schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = json::array(required.begin(), required.end());
  return {{"message", message}, {"requestedSchema", std::move(schema)}};
}

std::vector<ServedTool> asking_tools() {
  std::vector<ServedTool> tools;
  tools.push_back(
      {.tool = make_tool(
           {.name = "test_approval",
            .description = "Runs where its user agrees.",
            .approval_mode = ApprovalMode::always_require,
            .run = [](const auto&, const auto&) { return ToolResult{.text = "it was approved"}; }}),
       .open_world = OpenWorld::no});
  tools.push_back(tool(
      "test_sampling", "Asks the client's model.",
      [](const json::object& arguments, const ToolCall&) {
        const auto answer =
            ask_client("prompt", kSample, sampling(arguments.at("prompt").as_string(), 100));
        if (!answer) return nobody();
        return ToolResult{.text = "LLM response: " + serialise_json(*answer)};
      },
      one_string("prompt")));
  tools.push_back(tool(
      "test_elicitation", "Asks the user who he is.",
      [](const json::object& arguments, const ToolCall&) {
        const auto answer = ask_client(
            "user", kElicit,
            form(arguments.at("message").as_string(),
                 {{"username", text_field()}, {"email", text_field()}}, {"username", "email"}));
        if (!answer) return nobody();
        return ToolResult{.text = "User response: " + serialise_json(*answer)};
      },
      one_string("message")));
  tools.push_back(elicits("test_elicitation_sep1034_defaults", defaults()));
  tools.push_back(elicits("test_elicitation_sep1330_enums", choices()));
  tools.push_back(asks("test_missing_capability", "prompt", kSample, sampling("Hello", 10)));
  tools.push_back(asks("test_streaming_elicitation", "user_name", kElicit,
                       form("What is your name?", {{"name", text_field()}}, {"name"})));
  tools.push_back(asks("test_input_required_result_elicitation", "user_name", kElicit,
                       form("What is your name?", {{"name", text_field()}}, {"name"})));
  tools.push_back(asks("test_input_required_result_sampling", "capital_question", kSample,
                       sampling("What is the capital of France?", 100)));
  tools.push_back(asks("test_input_required_result_list_roots", "client_roots", "roots/list", {}));
  for (const char* name :
       {"test_input_required_result_request_state", "test_input_required_result_tampered_state"}) {
    tools.push_back(asks(name, "confirm", kElicit,
                         form("Please confirm", {{"ok", {{"type", "boolean"}}}}, {"ok"})));
  }
  tools.push_back(asks_several("test_input_required_result_multiple_inputs"));
  tools.push_back(asks_several("test_input_required_result_capabilities"));
  tools.push_back(tool("test_input_required_result_multi_round", "Asks one thing after another.",
                       [](const json::object&, const ToolCall&) {
                         const auto name = ask_client("step1", kElicit,
                                                      form("Step 1: What is your name?",
                                                           {{"name", text_field()}}, {"name"}));
                         if (!name) return nobody();
                         const auto color = ask_client("step2", kElicit,
                                                       form("Step 2: What is your favorite color?",
                                                            {{"color", text_field()}}, {"color"}));
                         if (!color) return nobody();
                         return ToolResult{.text = "both steps were taken"};
                       }));
  return tools;
}

}  // namespace casemate::mcp::everything
