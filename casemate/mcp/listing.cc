// What can be listed, and read.

#include <fmt/format.h>

#include <boost/json.hpp>

#include "casemate/base/base64.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/mcp/asking.h"
#include "casemate/mcp/media_type.h"
#include "casemate/mcp/serving.h"
#include "casemate/tool/refusals.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

std::optional<std::string> cursor_of(const json::object& params) {
  if (!params.contains("cursor")) return std::nullopt;
  return std::string(required_string(params, "cursor"));
}

json::object input_schema(const Tool& tool, bool takes_conversation) {
  json::object schema = parse_json(tool.parameters()).get_object();
  if (takes_conversation) {
    json::value& properties = schema["properties"];
    if (!properties.is_object()) properties.emplace_object();
    properties.get_object()["conversation"] = {
        {"type", "string"},
        {"description",
         "The conversation that an earlier result named, to go on in its sandbox. Left out, the "
         "call begins a new one."}};
  }
  return schema;
}

json::object tool_json(const ServedTool& served, const RequestContext& context, Handles handles) {
  const RevisionFeatures& features = context.features();
  json::object tool;
  tool["name"] = served.tool.name();
  tool["description"] = served.tool.description();
  tool["inputSchema"] = input_schema(served.tool, features.stateless && handles == Handles::yes);
  if (features.annotations) {
    tool["annotations"] = {{"readOnlyHint", false},
                           {"openWorldHint", served.open_world == OpenWorld::yes}};
  }
  if (features.structured && !served.tool.declarations().empty()) {
    json::object& meta = tool["_meta"].emplace_object();
    for (const auto& [name, value] : served.tool.declarations()) meta[name] = value;
  }
  return tool;
}

[[noreturn]] void refuse_resource(const RequestContext& context, std::string_view uri) {
  throw RequestRefused(context.features().resource_not_found ? ErrorCode::resource_not_found
                                                             : ErrorCode::invalid_params,
                       "Resource not found", 200,
                       serialise_json(json::object{{"uri", uri.substr(0, kMaxIdBytes)}}));
}

}  // namespace

json::object resource_json(const ServerState& server, const PublishedArtifact& published,
                           const RequestContext& context) {
  json::object resource;
  resource["uri"] = published.uri;
  resource["name"] = published.artifact.name;
  const std::string_view type = media_type_of(published.artifact.name);
  if (server.options.media_types == MediaTypes::by_extension && !type.empty())
    resource["mimeType"] = type;
  if (context.features().structured) resource["size"] = published.artifact.bytes;
  return resource;
}

bool is_offered(const ServedTool& served, const Request& request) {
  return served.tool.approval_mode() != ApprovalMode::always_require ||
         request.peer->server->options.approve || request.context.abilities.elicitation;
}

std::string list_tools(const Request& request) {
  if (cursor_of(*request.message.params)) {
    throw RequestRefused(ErrorCode::invalid_params, "'cursor' was never given: there is one page");
  }
  const ServerOptions& options = request.peer->server->options;
  json::array tools;
  Kept kept = Kept::by_anybody;
  for (const ServedTool& served : options.tools) {
    // What is listed then depends on who asks.
    if (served.tool.approval_mode() == ApprovalMode::always_require && !options.approve) {
      kept = Kept::by_nobody;
    }
    if (!is_offered(served, request)) continue;
    tools.push_back(tool_json(served, request.context, options.conversations.handles));
  }
  return finished_result(request, {{"tools", std::move(tools)}}, kept);
}

std::string list_resources(const Request& request) {
  const ServerState& server = *request.peer->server;
  const auto page = server.artifacts.list(request.peer->owner, request.peer->caller.is_one_client,
                                          cursor_of(*request.message.params));
  if (!page) throw RequestRefused(ErrorCode::invalid_params, "'cursor' was never given");
  json::array resources;
  for (const PublishedArtifact& published : page->artifacts) {
    resources.push_back(resource_json(server, published, request.context));
  }
  json::object result{{"resources", std::move(resources)}};
  if (page->cursor) result["nextCursor"] = *page->cursor;
  return finished_result(request, std::move(result), Kept::by_nobody);
}

std::string list_resource_templates(const Request& request) {
  if (cursor_of(*request.message.params)) {
    throw RequestRefused(ErrorCode::invalid_params, "'cursor' was never given: there is one page");
  }
  return finished_result(request, {{"resourceTemplates", json::array()}}, Kept::by_anybody);
}

std::string read_resource(const Request& request) {
  const ServerState& server = *request.peer->server;
  const std::string uri(required_string(*request.message.params, "uri"));
  const auto published = server.artifacts.find(uri, request.peer->caller.identity);
  if (!published) refuse_resource(request.context, uri);
  std::string bytes;
  try {
    bytes = server.options.read_artifact(published->artifact, server.options.max_artifact_bytes);
  } catch (const SandboxError& refusal) {
    write_log(server.options.log, LogLevel::warning,
              fmt::format("a landed artifact cannot be read: {}", line_for_log(refusal)));
    refuse_resource(request.context, uri);
  }
  const std::string_view type = media_type_of(published->artifact.name);
  const bool named = server.options.media_types == MediaTypes::by_extension && !type.empty();
  json::object content;
  content["uri"] = uri;
  if (named) content["mimeType"] = type;
  if (named && is_text_type(type) && is_valid_utf8(bytes)) {
    content["text"] = std::move(bytes);
  } else {
    content["blob"] = encode_base64(bytes);
  }
  return finished_result(request, {{"contents", json::array{std::move(content)}}}, Kept::by_nobody);
}

std::string call_host_method(const Request& request, RunningCall& call, Exchange& exchange) {
  const HostMethod& method = request.peer->server->options.methods.at(request.message.method);
  Asking asking(request, call, exchange);
  json::object result;
  try {
    const Asking::Current current(asking);
    result = method.answer(*request.message.params);
  } catch (const NoSuchResource& missing) {
    refuse_resource(request.context, missing.uri());
  } catch (const InvalidArgument& refusal) {
    throw RequestRefused(ErrorCode::invalid_params, refusal.message());
  }
  if (auto questions = asking.instead_of_result(Asking::Outcome::done)) return *questions;
  if (request.context.features().stateless && method.keep_for) {
    result["ttlMs"] = method.keep_for->count();
    result["cacheScope"] = "private";
  }
  return finished_result(request, std::move(result), Kept::not_cacheable);
}

}  // namespace casemate::mcp
