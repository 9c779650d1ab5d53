// What both dialects read of a message.

#include <fmt/format.h>

#include <boost/json.hpp>

#include "casemate/base/json.h"
#include "casemate/mcp/serving.h"

namespace casemate::mcp {

namespace json = boost::json;

const json::string& required_string(const json::object& params, const char* name) {
  const json::value* value = params.if_contains(name);
  if (value == nullptr) {
    throw RequestRefused(ErrorCode::invalid_params, fmt::format("'{}' is missing", name));
  }
  if (!value->is_string()) {
    throw RequestRefused(ErrorCode::invalid_params, fmt::format("'{}' must be a string", name));
  }
  return value->get_string();
}

const json::object& meta_of(const Message& message) {
  static const json::object none;
  const json::value* meta = message.params->if_contains("_meta");
  if (meta == nullptr) return none;
  if (!meta->is_object()) {
    throw RequestRefused(ErrorCode::invalid_params, "'_meta' must be an object");
  }
  return meta->get_object();
}

std::optional<std::string> progress_token_of(const json::object& meta) {
  const json::value* token = meta.if_contains("progressToken");
  if (token == nullptr) return std::nullopt;
  const auto id = RequestId::from(*token);
  if (!id) {
    throw RequestRefused(
        ErrorCode::invalid_params,
        fmt::format("'progressToken' must be an integer or a string of at most {} bytes",
                    kMaxIdBytes));
  }
  return id->json();
}

ClientAbilities abilities_of(const json::object& capabilities) {
  ClientAbilities abilities;
  abilities.sampling = capabilities.contains("sampling");
  abilities.roots = capabilities.contains("roots");
  // One that names no form of it has the first, which had no name.
  const json::value* elicitation = capabilities.if_contains("elicitation");
  if (elicitation != nullptr && elicitation->is_object()) {
    abilities.elicitation =
        elicitation->get_object().empty() || elicitation->get_object().contains("form");
  }
  return abilities;
}

json::object capabilities(const ServerState& server) {
  json::object all = parse_json(server.options.more_capabilities).get_object();
  all["tools"] = json::object();
  if (server.options.read_artifact) all["resources"] = json::object();
  all["logging"] = json::object();
  return all;
}

json::object server_info(const ServerState& server) {
  return {{"name", server.options.name}, {"version", server.options.version}};
}

std::string finished_result(const Request& request, json::object result, Kept kept,
                            std::string_view result_type) {
  // How long a list of tools may be kept: it changes when the server is started anew.
  constexpr int kKeptMilliseconds = 300'000;
  if (request.context.features().stateless) {
    result["resultType"] = result_type;
    json::object meta;
    if (const json::value* given = result.if_contains("_meta"); given != nullptr) {
      if (given->is_object()) meta = given->get_object();
    }
    meta["io.modelcontextprotocol/serverInfo"] = server_info(*request.peer->server);
    result["_meta"] = std::move(meta);
    if (kept != Kept::not_cacheable) {
      result["ttlMs"] = kept == Kept::by_anybody ? kKeptMilliseconds : 0;
      result["cacheScope"] = kept == Kept::by_anybody ? "public" : "private";
    }
  }
  return serialise_json(result);
}

}  // namespace casemate::mcp
