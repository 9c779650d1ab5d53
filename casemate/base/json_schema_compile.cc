#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "casemate/base/json_schema_nodes.h"
#include "casemate/base/utf8.h"

namespace casemate::schema {
namespace {

namespace json = boost::json;

constexpr std::string_view kDialect = "https://json-schema.org/draft/2020-12/schema";

constexpr std::array<std::string_view, 8> kAnnotations{"title",     "description", "default",
                                                       "examples",  "deprecated",  "readOnly",
                                                       "writeOnly", "$comment"};

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

// A key as one token of a JSON pointer.
std::string pointer_token(std::string_view key) {
  std::string token;
  for (const char character : key) {
    if (character == '~') {
      token += "~0";
    } else if (character == '/') {
      token += "~1";
    } else {
      token += character;
    }
  }
  return token;
}

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// A URI fragment's text; what is no escape stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size() && hex_digit(text[at + 1]) >= 0 &&
        hex_digit(text[at + 2]) >= 0) {
      decoded += static_cast<char>(hex_digit(text[at + 1]) * 16 + hex_digit(text[at + 2]));
      at += 2;
    } else {
      decoded += text[at];
    }
  }
  return decoded;
}

class Compiler {
 public:
  std::vector<Node> compile(const json::value& schema) {
    add(schema, "");
    for (const Reference& reference : references_) {
      const auto found = places_.find(reference.target);
      if (found == places_.end()) {
        refuse(reference.place, fmt::format("$ref leads to '{}', where no schema is",
                                            escape_for_display(reference.target, 120)));
      }
      nodes_[reference.from].reference = found->second;
    }
    heights_.assign(nodes_.size(), kUnseen);
    for (NodeId id = 0; id < nodes_.size(); ++id) height(id);
    return std::move(nodes_);
  }

 private:
  struct Reference {
    NodeId from;
    std::string place;
    std::string target;
  };
  static constexpr int kUnseen = -1;
  static constexpr int kOpen = -2;

  [[noreturn]] static void refuse(std::string_view place, std::string_view what) {
    throw JsonSchemaError(fmt::format(
        "at {}: {}", place.empty() ? "the root" : escape_for_display(place, 200), what));
  }

  NodeId add(const json::value& schema, const std::string& place) {
    if (nodes_.size() >= JsonSchema::kMaxSchemas) {
      refuse(place, fmt::format("more than {} schemas in one", JsonSchema::kMaxSchemas));
    }
    const NodeId id = nodes_.size();
    nodes_.emplace_back();
    places_.emplace(place, id);
    if (schema.is_bool()) {
      nodes_[id].never = !schema.get_bool();
      return id;
    }
    if (!schema.is_object()) refuse(place, "a schema must be an object, true or false");
    Node node;
    for (const auto& member : schema.get_object()) {
      read(node, id, member.key(), member.value(), place);
    }
    nodes_[id] = std::move(node);
    return id;
  }

  // One keyword.
  void read(Node& node, NodeId id, std::string_view keyword, const json::value& value,
            const std::string& place) {
    if (read_value_keyword(node, keyword, value, place)) return;
    if (read_applicator(node, keyword, value, place)) return;
    if (keyword == "$ref") {
      if (!value.is_string() || !value.get_string().starts_with('#')) {
        refuse(place, "$ref must begin with '#': only this document is looked into");
      }
      references_.push_back({id, place, percent_decoded(view(value.get_string()).substr(1))});
      return;
    }
    if (keyword == "$defs") {
      for (const auto& [name, schema] : named(value, keyword, place)) add(*schema, name);
      return;
    }
    if (keyword == "$schema") {
      if (!value.is_string() || view(value.get_string()) != kDialect) {
        refuse(place, fmt::format("$schema must be {}", kDialect));
      }
      return;
    }
    if (keyword == "$id" && place.empty()) return;
    if (std::ranges::find(kAnnotations, keyword) != kAnnotations.end()) return;
    if (keyword == "pattern" || keyword == "format") {
      refuse(place, fmt::format("'{}' is not checked here; check it in the function", keyword));
    }
    refuse(place, fmt::format("the keyword '{}' is not known", escape_for_display(keyword, 80)));
  }

  bool read_value_keyword(Node& node, std::string_view keyword, const json::value& value,
                          const std::string& place) {
    if (keyword == "type") {
      node.types = types(value, place);
    } else if (keyword == "enum") {
      if (!value.is_array() || value.get_array().empty()) {
        refuse(place, "enum must be a list of at least one value");
      }
      narrow(node, value.get_array());
    } else if (keyword == "const") {
      narrow(node, json::array{value});
    } else if (keyword == "required") {
      node.required = names(value, place);
    } else if (keyword == "uniqueItems") {
      if (!value.is_bool()) refuse(place, "uniqueItems must be true or false");
      node.unique_items = value.get_bool();
    } else if (keyword == "minimum") {
      node.minimum = number(value, keyword, place);
    } else if (keyword == "maximum") {
      node.maximum = number(value, keyword, place);
    } else if (keyword == "exclusiveMinimum") {
      node.above = number(value, keyword, place);
    } else if (keyword == "exclusiveMaximum") {
      node.below = number(value, keyword, place);
    } else if (keyword == "multipleOf") {
      if (!value.is_int64() || value.get_int64() <= 0) {
        refuse(place, "multipleOf must be an integer above 0 here");
      }
      node.multiple_of = value.get_int64();
    } else if (Range* range = range_of(node, keyword)) {
      if (!value.is_int64() || value.get_int64() < 0) {
        refuse(place, fmt::format("{} must be an integer of at least 0", keyword));
      }
      (keyword.starts_with("min") ? range->at_least : range->at_most) =
          static_cast<std::uint64_t>(value.get_int64());
    } else {
      return false;
    }
    return true;
  }

  static Range* range_of(Node& node, std::string_view keyword) {
    if (keyword == "minLength" || keyword == "maxLength") return &node.length;
    if (keyword == "minItems" || keyword == "maxItems") return &node.item_count;
    if (keyword == "minProperties" || keyword == "maxProperties") return &node.property_count;
    return nullptr;
  }

  bool read_applicator(Node& node, std::string_view keyword, const json::value& value,
                       const std::string& place) {
    const std::string below = fmt::format("{}/{}", place, keyword);
    if (keyword == "properties") {
      for (const auto& [name, schema] : named(value, keyword, place)) {
        node.property_names.push_back(key_of(name));
        node.properties.emplace(key_of(name), add(*schema, name));
      }
    } else if (keyword == "additionalProperties") {
      node.additional = add(value, below);
    } else if (keyword == "items") {
      node.items = add(value, below);
    } else if (keyword == "not") {
      node.negated = add(value, below);
    } else if (keyword == "prefixItems") {
      node.prefix_items = list(value, keyword, place);
    } else if (keyword == "allOf") {
      node.all_of = list(value, keyword, place);
    } else if (keyword == "anyOf") {
      node.any_of = list(value, keyword, place);
    } else if (keyword == "oneOf") {
      node.exactly_one_of = list(value, keyword, place);
    } else {
      return false;
    }
    return true;
  }

  static Types types(const json::value& value, const std::string& place) {
    const auto one = [&](const json::value& name) -> Types {
      if (name.is_string()) {
        for (const TypeName& known : kTypeNames) {
          if (known.wire == view(name.get_string())) return known.types;
        }
      }
      refuse(place,
             "type must be of object, array, string, number, integer, boolean and null: one or a "
             "list");
    };
    if (!value.is_array()) return one(value);
    if (value.get_array().empty()) refuse(place, "type must name at least one type");
    Types all = 0;
    for (const json::value& name : value.get_array()) all = static_cast<Types>(all | one(name));
    return all;
  }

  // `enum` beside `const`: only what both allow.
  static void narrow(Node& node, const json::array& values) {
    if (!node.one_of_values) {
      node.one_of_values = values;
      return;
    }
    Budget budget(JsonSchema::kMaxSteps);
    json::array both;
    for (const json::value& value : values) {
      for (const json::value& other : *node.one_of_values) {
        if (compare(value, other, budget) == 0) {
          both.push_back(value);
          break;
        }
      }
    }
    node.one_of_values = std::move(both);
  }

  static std::vector<std::string> names(const json::value& value, const std::string& place) {
    std::vector<std::string> result;
    if (!value.is_array()) refuse(place, "required must be a list of names");
    for (const json::value& name : value.get_array()) {
      if (!name.is_string()) refuse(place, "required must be a list of names");
      result.emplace_back(view(name.get_string()));
    }
    return result;
  }

  static json::value number(const json::value& value, std::string_view keyword,
                            const std::string& place) {
    if (!value.is_number()) refuse(place, fmt::format("{} must be a number", keyword));
    return value;
  }

  // The members of an object of schemas, each with its pointer.
  static std::vector<std::pair<std::string, const json::value*>> named(const json::value& value,
                                                                       std::string_view keyword,
                                                                       const std::string& place) {
    if (!value.is_object()) refuse(place, fmt::format("{} must be an object of schemas", keyword));
    std::vector<std::pair<std::string, const json::value*>> members;
    for (const auto& member : value.get_object()) {
      members.emplace_back(fmt::format("{}/{}/{}", place, keyword, pointer_token(member.key())),
                           &member.value());
    }
    return members;
  }

  // The last token of a pointer, decoded.
  static std::string key_of(std::string_view pointer) {
    std::string key;
    const std::string_view token = pointer.substr(pointer.rfind('/') + 1);
    for (std::size_t at = 0; at < token.size(); ++at) {
      if (token[at] == '~') {
        key += token[++at] == '0' ? '~' : '/';
      } else {
        key += token[at];
      }
    }
    return key;
  }

  std::vector<NodeId> list(const json::value& value, std::string_view keyword,
                           const std::string& place) {
    if (!value.is_array() || value.get_array().empty()) {
      refuse(place, fmt::format("{} must be a list of at least one schema", keyword));
    }
    std::vector<NodeId> ids;
    for (const json::value& schema : value.get_array()) {
      ids.push_back(add(schema, fmt::format("{}/{}/{}", place, keyword, ids.size())));
    }
    return ids;
  }

  // How many schemas, one by way of another, apply to one and the same value. Refuses a circle,
  // which would never come to an end, and what would take too much of a thread's stack.
  int height(NodeId id) {
    if (heights_[id] == kOpen) {
      throw JsonSchemaError("a $ref leads back to itself without going into the value");
    }
    if (heights_[id] != kUnseen) return heights_[id];
    heights_[id] = kOpen;
    const Node& node = nodes_[id];
    int below = 0;
    for (const auto* part : {&node.all_of, &node.any_of, &node.exactly_one_of}) {
      for (const NodeId each : *part) below = std::max(below, height(each));
    }
    for (const auto& part : {node.negated, node.reference}) {
      if (part) below = std::max(below, height(*part));
    }
    if (below >= JsonSchema::kMaxStacked) {
      throw JsonSchemaError(fmt::format(
          "more than {} schemas stand for one value by way of another", JsonSchema::kMaxStacked));
    }
    return heights_[id] = below + 1;
  }

  std::vector<Node> nodes_;
  std::map<std::string, NodeId, std::less<>> places_;
  std::vector<Reference> references_;
  std::vector<int> heights_;
};

}  // namespace

std::vector<Node> compile(const json::value& schema) { return Compiler().compile(schema); }

}  // namespace casemate::schema
