#include "casemate/backends/docker/engine_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "casemate/backends/docker/engine.h"
#include "casemate/core/errors.h"

namespace casemate::docker {

namespace json = boost::json;

void no_sense(std::string_view what) {
  throw SandboxUnavailable(fmt::format("the engine's answer makes no sense: {}", what),
                           "is it a container engine that listens there?");
}

json::object parse(const std::string& body) {
  try {
    json::value value = parse_json(body, kAnswerBounds);
    if (value.is_object()) return std::move(value.as_object());
  } catch (const JsonError& error) {
    no_sense(error.what());
  }
  no_sense("no object");
}

json::array parse_array(const std::string& body) {
  try {
    json::value value = parse_json(body, kAnswerBounds);
    if (value.is_array()) return std::move(value.as_array());
    if (value.is_null()) return {};
  } catch (const JsonError& error) {
    no_sense(error.what());
  }
  no_sense("no array");
}

std::string text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

bool flag(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

std::uint64_t number(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return 0;
  boost::system::error_code error;
  const auto read = value->to_number<std::uint64_t>(error);
  return error ? 0 : read;
}

const json::object& inner(const json::object& object, std::string_view name) {
  static const json::object kNone;
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_object() ? value->as_object() : kNone;
}

std::map<std::string, std::string> texts(const json::object& object) {
  std::map<std::string, std::string> map;
  for (const auto& [name, value] : object) {
    if (value.is_string()) map[std::string(name)] = std::string(value.as_string());
  }
  return map;
}

std::string words_of(const EngineReply& reply) {
  try {
    const json::value value = parse_json(reply.body, kAnswerBounds);
    if (value.is_object()) {
      if (std::string said = text(value.as_object(), "message"); !said.empty()) return said;
    }
  } catch (const JsonError&) {
  }
  return reply.body.substr(0, kMostWords);
}

std::string filters(std::string_view name, const std::vector<std::string>& values) {
  json::array all;
  for (const std::string& value : values) all.emplace_back(value);
  return "filters=" + encode_for_target(serialise_json(json::object{{name, std::move(all)}}));
}

void expect(const EngineReply& reply, std::initializer_list<unsigned> statuses) {
  if (std::find(statuses.begin(), statuses.end(), reply.status) != statuses.end()) return;
  throw EngineRefused(reply.status, words_of(reply));
}

}  // namespace casemate::docker
