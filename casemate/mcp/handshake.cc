// The revisions that begin with `initialize`: 2024-11-05 to 2025-11-25.

#include <boost/json.hpp>

#include "casemate/base/json.h"
#include "casemate/mcp/serving.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

// The revision asked for when it is one of these, else our newest: also for what is no string.
Revision agreed(const json::object& params) {
  const json::value* asked = params.if_contains("protocolVersion");
  if (asked == nullptr || !asked->is_string()) return kNewestHandshake;
  const auto known = find_revision(asked->get_string());
  return known && *known != kStateless ? *known : kNewestHandshake;
}

std::string initialize(Peer::State& peer, const Request& request) {
  const Revision revision = agreed(*request.message.params);
  {
    const std::lock_guard lock(peer.mutex);
    peer.revision = revision;
    peer.abilities = {};
    const json::value* capabilities = request.message.params->if_contains("capabilities");
    if (capabilities != nullptr && capabilities->is_object()) {
      peer.abilities = abilities_of(capabilities->get_object());
    }
    if (!features_of(revision).elicitation) peer.abilities.elicitation = false;
  }
  json::object result;
  result["protocolVersion"] = to_string(revision);
  result["capabilities"] = capabilities(*peer.server);
  result["serverInfo"] = server_info(*peer.server);
  if (!peer.server->options.instructions.empty()) {
    result["instructions"] = peer.server->options.instructions;
  }
  return serialise_json(result);
}

std::string set_level(Peer::State& peer, const Request& request) {
  const auto level = find_severity(required_string(*request.message.params, "level"));
  if (!level) throw RequestRefused(ErrorCode::invalid_params, "'level' is no log level");
  const std::lock_guard lock(peer.mutex);
  peer.log_level = level;
  return "{}";
}

}  // namespace

RequestContext handshake_context(const Peer::State& peer, const Message& message) {
  const json::object& meta = meta_of(message);
  const std::lock_guard lock(peer.mutex);
  return {.revision = peer.revision.value_or(kNewestHandshake),
          .log_level = peer.log_level,
          .progress_token = progress_token_of(meta),
          .abilities = peer.abilities};
}

std::optional<std::string> handshake_method(Peer::State& peer, const Request& request) {
  const std::string& method = request.message.method;
  if (method == "ping") return "{}";
  if (method == "initialize") return initialize(peer, request);
  if (method == "logging/setLevel") return set_level(peer, request);
  return std::nullopt;
}

}  // namespace casemate::mcp
