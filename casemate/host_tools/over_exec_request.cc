#include "casemate/host_tools/over_exec_request.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "casemate/base/json.h"

namespace casemate {
namespace {

namespace json = boost::json;

std::string_view type_of(const json::value* value) {
  if (value == nullptr) return "nothing";
  switch (value->kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

}  // namespace

OverExecMessage read_over_exec_request(std::string_view text) {
  json::value value;
  try {
    value = parse_json(text, {.max_bytes = text.size()});
  } catch (const JsonError& error) {
    return HostToolAnswer::refused(
        fmt::format("the request is no JSON that is accepted: {}.", quote_bounded(error.what())));
  }
  const json::object* request = value.if_object();
  if (request == nullptr) {
    return HostToolAnswer::refused(
        fmt::format("the request is {}; it must be an object.", type_of(&value)));
  }
  const json::value* abandoned = request->if_contains("abandoned");
  if (abandoned != nullptr && abandoned->is_bool() && abandoned->get_bool()) {
    return OverExecAbandoned();
  }
  const json::value* name = request->if_contains("name");
  const json::value* arguments = request->if_contains("arguments");
  OverExecRequest read;
  read.has_name = name != nullptr && name->is_string();
  read.name = read.has_name ? std::string(name->get_string()) : std::string(type_of(name));
  read.arguments = arguments == nullptr ? "null" : serialise_json(*arguments);
  return read;
}

HostToolAnswer over_exec_request_too_large(std::uint64_t max_bytes) {
  return HostToolAnswer::refused(
      fmt::format("the request is too large; one may have {} bytes.", max_bytes));
}

std::string over_exec_response(const HostToolAnswer& answer) {
  if (answer.ok()) return fmt::format("{{\"value\": {}}}", answer.text());
  return serialise_json(json::object{{"refusal", answer.text()}});
}

}  // namespace casemate
