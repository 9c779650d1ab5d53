// Prompts, fixed resources and completion: what a host may serve beside its tools.

#include <boost/json.hpp>
#include <string>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/mcp/ask_client.h"
#include "tests/mcp/everything_tools.h"

namespace casemate::mcp::everything {
namespace {

namespace json = boost::json;

constexpr std::chrono::milliseconds kKeepFor{60'000};
constexpr std::string_view kTemplateBegin = "test://template/";
constexpr std::string_view kTemplateEnd = "/data";

std::string text_of(const json::object& params, const char* name) {
  const json::value* value = params.if_contains(name);
  if (value == nullptr || !value->is_string()) {
    throw InvalidArgument(std::string("'") + name + "' must be a string");
  }
  return std::string(value->get_string());
}

json::object from_user(json::object content) {
  return {{"role", "user"}, {"content", std::move(content)}};
}
json::object text(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

json::object argument(const char* name) {
  return {{"name", name}, {"description", "for the text"}, {"required", true}};
}

json::object list_prompts(const json::object&) {
  const auto prompt = [](const char* name, json::array arguments) {
    json::object listed{{"name", name}, {"description", "A prompt of the suites."}};
    if (!arguments.empty()) listed["arguments"] = std::move(arguments);
    return listed;
  };
  return {
      {"prompts",
       {prompt("test_simple_prompt", {}),
        prompt("test_prompt_with_arguments", {argument("arg1"), argument("arg2")}),
        prompt("test_prompt_with_embedded_resource", {argument("resourceUri")}),
        prompt("test_prompt_with_image", {}), prompt("test_input_required_result_prompt", {})}}};
}

json::array messages_of(const std::string& name, const json::object& arguments) {
  if (name == "test_simple_prompt") {
    return {from_user(text("This is a simple prompt for testing."))};
  }
  if (name == "test_prompt_with_arguments") {
    return {from_user(text("Prompt with arguments: arg1='" + text_of(arguments, "arg1") +
                           "', arg2='" + text_of(arguments, "arg2") + "'"))};
  }
  if (name == "test_prompt_with_embedded_resource") {
    return {from_user({{"type", "resource"},
                       {"resource",
                        {{"uri", text_of(arguments, "resourceUri")},
                         {"mimeType", "text/plain"},
                         {"text", "Embedded resource content for testing."}}}}),
            from_user(text("Please process the embedded resource above."))};
  }
  if (name == "test_prompt_with_image") {
    return {from_user({{"type", "image"}, {"data", kPicture}, {"mimeType", "image/png"}}),
            from_user(text("Please analyze the image above."))};
  }
  if (name == "test_input_required_result_prompt") {
    const auto context = ask_client("user_context", "elicitation/create",
                                    form("What context should the prompt use?",
                                         {{"context", {{"type", "string"}}}}, {"context"}));
    return {from_user(text(context ? "The context was given." : "There is no context."))};
  }
  throw InvalidArgument("there is no such prompt");
}

json::object get_prompt(const json::object& params) {
  const json::value* arguments = params.if_contains("arguments");
  return {{"messages",
           messages_of(text_of(params, "name"), arguments != nullptr && arguments->is_object()
                                                    ? arguments->get_object()
                                                    : json::object())}};
}

json::object complete(const json::object& params) {
  if (!params.contains("ref") || !params.contains("argument")) {
    throw InvalidArgument("'ref' and 'argument' are needed");
  }
  return {
      {"completion", {{"values", {"paris", "park", "party"}}, {"total", 3}, {"hasMore", false}}}};
}

json::object list_resources(const json::object&) {
  return {{"resources",
           {{{"uri", "test://static-text"},
             {"name", "static text"},
             {"description", "A text."},
             {"mimeType", "text/plain"}},
            {{"uri", "test://static-binary"},
             {"name", "static binary"},
             {"description", "A picture."},
             {"mimeType", "image/png"}}}}};
}

json::object list_templates(const json::object&) {
  return {{"resourceTemplates",
           {{{"uriTemplate", "test://template/{id}/data"},
             {"name", "template"},
             {"description", "Data by number."},
             {"mimeType", "application/json"}}}}};
}

json::object read(const json::object& params) {
  const std::string uri = text_of(params, "uri");
  json::object content{{"uri", uri}};
  if (uri == "test://static-text") {
    content["mimeType"] = "text/plain";
    content["text"] = "This is the content of the static text resource.";
  } else if (uri == "test://static-binary") {
    content["mimeType"] = "image/png";
    content["blob"] = kPicture;
  } else if (uri.size() > kTemplateBegin.size() + kTemplateEnd.size() &&
             uri.starts_with(kTemplateBegin) && uri.ends_with(kTemplateEnd)) {
    const std::string id =
        uri.substr(kTemplateBegin.size(), uri.size() - kTemplateBegin.size() - kTemplateEnd.size());
    content["mimeType"] = "application/json";
    content["text"] = json::serialize(
        json::object{{"id", id}, {"templateTest", true}, {"data", "Data for ID: " + id}});
  } else {
    throw NoSuchResource(uri);
  }
  return {{"contents", {std::move(content)}}};
}

}  // namespace

const char* const kCapabilities = R"({"prompts":{},"completions":{},"resources":{}})";

std::map<std::string, HostMethod, std::less<>> methods() {
  return {{"prompts/list", {list_prompts, kKeepFor}},
          {"prompts/get", {get_prompt, {}}},
          {"completion/complete", {complete, {}}},
          {"resources/list", {list_resources, kKeepFor}},
          {"resources/templates/list", {list_templates, kKeepFor}},
          {"resources/read", {read, kKeepFor}}};
}

}  // namespace casemate::mcp::everything
