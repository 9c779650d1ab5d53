#include "casemate/tool/parameters.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "casemate/base/json.h"
#include "casemate/tool/refusals.h"

namespace casemate {
namespace {

namespace json = boost::json;

// An argument that the tool does not know must never pass unseen, so the root has to say it.
void check_root(const json::value& schema) {
  const json::object* root = schema.if_object();
  const json::value* type = root == nullptr ? nullptr : root->if_contains("type");
  if (type == nullptr || !type->is_string() || type->get_string() != "object") {
    throw InvalidArgument("the schema of a tool's parameters must be one of an object");
  }
  const json::value* additional = root->if_contains("additionalProperties");
  if (additional == nullptr || !additional->is_bool() || additional->get_bool()) {
    throw InvalidArgument(
        "the schema of a tool's parameters at the root: additionalProperties must be false");
  }
}

}  // namespace

ToolParameters::ToolParameters(JsonSchema schema) : schema_(std::move(schema)) {}

ToolParameters ToolParameters::parse(std::string_view schema) {
  try {
    JsonSchema parsed = JsonSchema::parse(schema);
    check_root(parse_json(schema));
    return ToolParameters(std::move(parsed));
  } catch (const JsonSchemaError& error) {
    throw InvalidArgument(fmt::format("the schema of a tool's parameters: {}", error.what()));
  }
}

json::object ToolParameters::check(std::string_view arguments) const {
  json::value value;
  try {
    value = parse_json(arguments);
  } catch (const JsonError& error) {
    throw ModelFacingRefusal(fmt::format("the arguments are not valid JSON: {}.", error.what()));
  }
  if (const auto mismatch = schema_.check(value)) {
    throw ModelFacingRefusal(mismatch->sentence(value.is_object() ? "parameter" : "argument"));
  }
  return std::move(value.get_object());
}

}  // namespace casemate
