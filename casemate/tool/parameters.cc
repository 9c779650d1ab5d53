#include "casemate/tool/parameters.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/tool/refusals.h"

namespace casemate {
namespace {

namespace json = boost::json;

struct TypeName {
  std::string_view wire;
  // As a sentence says it.
  std::string_view phrase;
};

constexpr std::array kTypes{
    TypeName{"object", "an object"}, TypeName{"array", "a list"},
    TypeName{"string", "a string"},  TypeName{"integer", "an integer"},
    TypeName{"number", "a number"},  TypeName{"boolean", "true or false"},
};

constexpr std::array<std::string_view, 10> kKeywords{
    "type",     "properties", "required", "additionalProperties", "items",
    "minItems", "maxItems",   "title",    "description",          "default"};

std::string_view phrase_of(std::string_view type) {
  for (const TypeName& known : kTypes) {
    if (known.wire == type) return known.phrase;
  }
  return {};
}

std::string_view phrase_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "true or false";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      break;
  }
  return "an object";
}

bool is_integer(const json::value& value) { return value.is_int64() || value.is_uint64(); }

bool fits_type(const json::value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return is_integer(value);
  if (type == "number") return value.is_number();
  return value.is_bool();
}

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

// -- The schema itself ---------------------------------------------------------------------------

[[noreturn]] void refuse_schema(std::string_view where, std::string_view what) {
  throw InvalidArgument(fmt::format("the schema of a tool's parameters at {}: {}", where, what));
}

std::optional<std::uint64_t> count(const json::object& schema, std::string_view keyword,
                                   std::string_view where) {
  const json::value* value = schema.if_contains(keyword);
  if (value == nullptr) return std::nullopt;
  if (!value->is_int64() || value->get_int64() < 0) {
    refuse_schema(where, fmt::format("{} must be an integer of at least 0", keyword));
  }
  return static_cast<std::uint64_t>(value->get_int64());
}

void check_schema(const json::value& value, const std::string& where) {
  const json::object* schema = value.if_object();
  if (schema == nullptr) refuse_schema(where, "a schema must be an object");
  for (const auto& member : *schema) {
    const std::string_view keyword(member.key().data(), member.key().size());
    if (std::ranges::find(kKeywords, keyword) == kKeywords.end()) {
      refuse_schema(where, fmt::format("keyword '{}' is not among those that are held ({})",
                                       escape_for_display(keyword), fmt::join(kKeywords, ", ")));
    }
  }
  const json::value* type = schema->if_contains("type");
  if (type == nullptr || !type->is_string() || phrase_of(view(type->get_string())).empty()) {
    refuse_schema(where, "type must be one of object, array, string, integer, number, boolean");
  }
  const std::string_view type_name = view(type->get_string());
  for (const std::string_view keyword : {"properties", "required", "additionalProperties"}) {
    if (type_name != "object" && schema->contains(keyword)) {
      refuse_schema(where, fmt::format("{} belongs to an object", keyword));
    }
  }
  for (const std::string_view keyword : {"items", "minItems", "maxItems"}) {
    if (type_name != "array" && schema->contains(keyword)) {
      refuse_schema(where, fmt::format("{} belongs to an array", keyword));
    }
  }
  if (type_name == "array") {
    count(*schema, "minItems", where);
    count(*schema, "maxItems", where);
    if (const json::value* items = schema->if_contains("items")) {
      check_schema(*items, where + "/items");
    }
  }
  if (type_name != "object") return;

  const json::value* additional = schema->if_contains("additionalProperties");
  if (additional == nullptr || !additional->is_bool() || additional->get_bool()) {
    refuse_schema(where, "additionalProperties must be false");
  }
  const json::value* properties = schema->if_contains("properties");
  if (properties != nullptr) {
    if (!properties->is_object()) refuse_schema(where, "properties must be an object");
    for (const auto& member : properties->get_object()) {
      check_schema(member.value(), fmt::format("{}/{}", where, std::string_view(member.key())));
    }
  }
  if (const json::value* required = schema->if_contains("required")) {
    if (!required->is_array()) refuse_schema(where, "required must be a list of names");
    for (const json::value& name : required->get_array()) {
      if (!name.is_string() || properties == nullptr ||
          !properties->get_object().contains(name.get_string())) {
        refuse_schema(where, "required must name properties");
      }
    }
  }
}

// -- A value against it --------------------------------------------------------------------------

void check_object(const json::object& object, const json::object& schema, const std::string& path);

// `path` is "" for the arguments themselves, else how a sentence names the parameter.
void check_value(const json::value& value, const json::object& schema, const std::string& path) {
  const std::string_view type = view(schema.at("type").get_string());
  if (!fits_type(value, type)) {
    throw ModelFacingRefusal(
        fmt::format("parameter '{}' must be {}, not {}.", path, phrase_of(type), phrase_of(value)));
  }
  if (type == "object") return check_object(value.get_object(), schema, path);
  if (type != "array") return;

  const json::array& items = value.get_array();
  const auto at_least = count(schema, "minItems", path);
  const auto at_most = count(schema, "maxItems", path);
  if ((at_least && items.size() < *at_least) || (at_most && items.size() > *at_most)) {
    throw ModelFacingRefusal(
        fmt::format("parameter '{}' has {} items; it takes {}.", path, items.size(),
                    at_least && items.size() < *at_least ? fmt::format("at least {}", *at_least)
                                                         : fmt::format("at most {}", *at_most)));
  }
  const json::value* item_schema = schema.if_contains("items");
  if (item_schema == nullptr) return;
  for (std::size_t index = 0; index < items.size(); ++index) {
    check_value(items[index], item_schema->get_object(), fmt::format("{}[{}]", path, index));
  }
}

void check_object(const json::object& object, const json::object& schema, const std::string& path) {
  const json::value* found = schema.if_contains("properties");
  static const json::object kNone;
  const json::object& properties = found == nullptr ? kNone : found->get_object();
  const auto name_of = [&](std::string_view key) {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  };
  for (const auto& member : object) {
    const std::string_view key(member.key().data(), member.key().size());
    const json::value* property = properties.if_contains(key);
    if (property == nullptr) {
      std::vector<std::string> known;
      for (const auto& each : properties) known.emplace_back(each.key());
      throw ModelFacingRefusal(fmt::format("there is no parameter '{}'; there is {}.",
                                           name_of(escape_for_display(key, 80)),
                                           fmt::join(known, ", ")));
    }
    check_value(member.value(), property->get_object(), name_of(key));
  }
  const json::value* required = schema.if_contains("required");
  if (required == nullptr) return;
  for (const json::value& name : required->get_array()) {
    if (!object.contains(name.get_string())) {
      throw ModelFacingRefusal(
          fmt::format("parameter '{}' is missing.", name_of(view(name.get_string()))));
    }
  }
}

}  // namespace

ToolParameters::ToolParameters(std::string text, std::shared_ptr<const json::object> schema)
    : text_(std::move(text)), schema_(std::move(schema)) {}

ToolParameters ToolParameters::parse(std::string_view schema) {
  json::value value;
  try {
    value = parse_json(schema);
  } catch (const JsonError& error) {
    throw InvalidArgument(
        fmt::format("the schema of a tool's parameters is no JSON: {}", error.what()));
  }
  check_schema(value, "the root");
  if (view(value.get_object().at("type").get_string()) != "object") {
    throw InvalidArgument("the schema of a tool's parameters must be one of an object");
  }
  return {std::string(schema), std::make_shared<const json::object>(value.get_object())};
}

json::object ToolParameters::check(std::string_view arguments) const {
  json::value value;
  try {
    value = parse_json(arguments);
  } catch (const JsonError& error) {
    throw ModelFacingRefusal(fmt::format("the arguments are not valid JSON: {}.", error.what()));
  }
  if (!value.is_object()) {
    throw ModelFacingRefusal(
        fmt::format("the arguments must be an object, not {}.", phrase_of(value)));
  }
  check_object(value.get_object(), *schema_, "");
  return std::move(value.get_object());
}

}  // namespace casemate
