// The revision without a handshake, 2026-07-28: each request says for itself what it is.

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>

#include "casemate/base/base64.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/mcp/serving.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr std::string_view kClientKey = "io.modelcontextprotocol/clientInfo";
constexpr std::string_view kLogLevelKey = "io.modelcontextprotocol/logLevel";

constexpr int kBadRequest = 400;

[[noreturn]] void refuse_meta(const std::string& why) {
  throw RequestRefused(ErrorCode::invalid_params, why, kBadRequest);
}

// With the revisions that a request may name for itself, as `server/discover` lists them: those of
// the handshake are no answer to a client that asks without one.
[[noreturn]] void refuse_version(std::string_view asked) {
  throw RequestRefused(
      ErrorCode::unsupported_version, "Unsupported protocol version", kBadRequest,
      serialise_json(
          json::object{{"supported", json::array{to_string(kStateless)}}, {"requested", asked}}));
}

// The value as the body would have it: a name that is no plain ASCII comes in base64.
std::optional<std::string> decoded(std::string_view value) {
  constexpr std::string_view kPrefix = "=?base64?";
  constexpr std::string_view kSuffix = "?=";
  if (!value.starts_with(kPrefix) || !value.ends_with(kSuffix) ||
      value.size() < kPrefix.size() + kSuffix.size()) {
    return std::string(value);
  }
  value.remove_prefix(kPrefix.size());
  value.remove_suffix(kSuffix.size());
  return decode_base64(value);
}

void check_header(const Headers& headers, std::string_view name, std::string_view in_body,
                  bool may_be_encoded) {
  const auto refuse = [name](std::string_view why) {
    throw RequestRefused(ErrorCode::header_mismatch,
                         fmt::format("Header mismatch: {} {}", name, why), kBadRequest);
  };
  const auto found = headers.find(name);
  if (found == headers.end()) refuse("is missing");
  for (const char c : found->second) {
    if ((c < ' ' && c != '\t') || c > '~') refuse("has characters that a header may not have");
  }
  const auto value =
      may_be_encoded ? decoded(found->second) : std::optional<std::string>(found->second);
  if (!value) refuse("is no valid base64");
  if (*value != in_body) refuse("does not match the body");
}

// What intermediaries route by has to be what we do.
void check_routing_headers(const Message& message, const Headers& headers) {
  check_header(headers, "mcp-method", message.method, false);
  struct Named {
    std::string_view method;
    const char* param;
  };
  constexpr std::array kNamed = {Named{"tools/call", "name"}, Named{"resources/read", "uri"},
                                 Named{"prompts/get", "name"}};
  for (const auto& [method, param] : kNamed) {
    if (message.method != method) continue;
    const json::string& name = required_string(*message.params, param);
    check_header(headers, "mcp-name", {name.data(), name.size()}, true);
  }
}

}  // namespace

bool says_stateless(const Message& message) {
  if (message.method == "server/discover") return true;
  const json::value* meta = message.params->if_contains("_meta");
  return meta != nullptr && meta->is_object() && meta->get_object().contains(kVersionKey);
}

bool is_stateless(const Received& received, const Headers* headers) {
  if (headers != nullptr) {
    const auto version = headers->find("mcp-protocol-version");
    if (version != headers->end() && version->second == to_string(kStateless)) return true;
  }
  for (const auto& part : received.parts) {
    const auto* message = std::get_if<Message>(&part);
    if (message != nullptr && says_stateless(*message)) return true;
  }
  return false;
}

RequestContext stateless_context(const Message& message, const Headers* headers) {
  const json::value* given = message.params->if_contains("_meta");
  if (given == nullptr || !given->is_object()) {
    refuse_meta(
        fmt::format("'_meta' with '{}' and '{}' is missing", kVersionKey, kCapabilitiesKey));
  }
  const json::object& meta = given->get_object();
  const json::value* version = meta.if_contains(kVersionKey);
  if (version == nullptr || !version->is_string()) {
    refuse_meta(fmt::format("'_meta' must have '{}', a string", kVersionKey));
  }
  const std::string_view asked(version->get_string().data(), version->get_string().size());
  if (headers != nullptr) check_header(*headers, "mcp-protocol-version", asked, false);
  if (asked != to_string(kStateless)) refuse_version(asked.substr(0, kMaxIdBytes));
  if (headers != nullptr) check_routing_headers(message, *headers);
  const json::value* client = meta.if_contains(kCapabilitiesKey);
  if (client == nullptr || !client->is_object()) {
    refuse_meta(fmt::format("'_meta' must have '{}', an object", kCapabilitiesKey));
  }
  const json::value* info = meta.if_contains(kClientKey);
  if (info != nullptr && !info->is_object()) {
    refuse_meta(fmt::format("'{}' must be an object", kClientKey));
  }
  RequestContext context{.revision = kStateless,
                         .progress_token = progress_token_of(meta),
                         .abilities = abilities_of(client->get_object())};
  if (const json::value* level = meta.if_contains(kLogLevelKey); level != nullptr) {
    if (level->is_string()) context.log_level = find_severity(level->get_string());
    if (!context.log_level) refuse_meta(fmt::format("'{}' is no log level", kLogLevelKey));
  }
  return context;
}

std::optional<std::string> stateless_method(const Request& request) {
  if (request.message.method != "server/discover") return std::nullopt;
  const ServerState& server = *request.peer->server;
  json::object result;
  result["supportedVersions"] = json::array{to_string(kStateless)};
  result["capabilities"] = capabilities(server);
  if (!server.options.instructions.empty()) result["instructions"] = server.options.instructions;
  return finished_result(request, std::move(result), Kept::by_anybody);
}

}  // namespace casemate::mcp
