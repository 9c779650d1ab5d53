#include "casemate/base/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/base/json_schema_nodes.h"
#include "casemate/base/utf8.h"

namespace casemate {
namespace {

namespace json = boost::json;
using schema::Node;
using schema::NodeId;
using schema::Range;
using schema::Types;

// The longest key that a mismatch repeats.
constexpr std::size_t kMaxShownKey = 80;

// Where the check is: a chain on the stack, spelled out only when something does not fit.
struct Place {
  const Place* above = nullptr;
  std::string_view key{};
  std::size_t index = 0;
  bool is_index = false;

  std::string text() const {
    if (above == nullptr) return {};
    std::string path = above->text();
    if (is_index) return fmt::format("{}[{}]", path, index);
    if (!path.empty()) path += '.';
    return path + escape_for_display(key, kMaxShownKey);
  }
};

std::string phrase_of(Types types) {
  std::string text;
  for (const schema::TypeName& known : schema::kTypeNames) {
    if ((known.types & ~types) != 0) continue;
    if (!text.empty()) text += " or ";
    text += known.phrase;
    types = static_cast<Types>(types & ~known.types);
  }
  return text;
}

// What a value is called when it is the wrong one.
std::string phrase_of(const json::value& value) {
  const Types types = schema::types_of(value);
  return types == schema::kFraction ? "a number" : phrase_of(types);
}

std::string number_text(const json::value& number) { return serialise_json(number); }

class Check {
 public:
  explicit Check(const std::vector<Node>& nodes) : nodes_(nodes), budget_(JsonSchema::kMaxSteps) {}

  std::optional<JsonMismatch> root(const json::value& value) {
    try {
      if (fits(0, value, Place{})) return std::nullopt;
      return std::move(mismatch_);
    } catch (const schema::Budget::Spent&) {
      return JsonMismatch{JsonMismatch::Kind::too_costly, "",
                          "take too long to compare with what is expected"};
    }
  }

 private:
  // Of an alternative that is only tried nobody wants to know why.
  template <typename... Parts>
  bool wrong(const Place& place, fmt::format_string<const Parts&...> what, const Parts&... parts) {
    if (trying_ > 0) return false;
    return fail(JsonMismatch::Kind::wrong_value, place, fmt::format(what, parts...));
  }

  bool fail(JsonMismatch::Kind kind, const Place& place, std::string what) {
    if (trying_ == 0) mismatch_ = JsonMismatch{kind, place.text(), std::move(what)};
    return false;
  }

  bool tried(NodeId id, const json::value& value, const Place& place) {
    ++trying_;
    const bool good = fits(id, value, place);
    --trying_;
    return good;
  }

  bool fits(NodeId id, const json::value& value, const Place& place) {
    budget_.spend();
    const Node& node = nodes_[id];
    if (node.never) return wrong(place, "is not allowed");
    if ((schema::types_of(value) & node.types) == 0) {
      return trying_ == 0 &&
             wrong(place, "must be {}, not {}", phrase_of(node.types), phrase_of(value));
    }
    if (node.one_of_values && !fits_values(node, value, place)) return false;
    if (value.is_object() && !fits_object(node, value.get_object(), place)) return false;
    if (value.is_array() && !fits_array(node, value.get_array(), place)) return false;
    if (value.is_string() && !fits_string(node, value.get_string(), place)) return false;
    if (value.is_number() && !fits_number(node, value, place)) return false;
    return fits_combined(node, value, place);
  }

  bool fits_values(const Node& node, const json::value& value, const Place& place) {
    std::string known;
    for (const json::value& allowed : *node.one_of_values) {
      if (schema::compare(value, allowed, budget_) == 0) return true;
    }
    if (trying_ > 0) return false;
    for (const json::value& allowed : *node.one_of_values) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", serialise_json(allowed));
      if (known.size() > 200) {
        known = fmt::format("{} ...", known.substr(0, character_boundary_before(known, 200)));
        break;
      }
    }
    return wrong(place, "must be one of: {}", known);
  }

  bool fits_range(const Range& range, std::uint64_t count, std::string_view what,
                  const Place& place) {
    if (range.at_least && count < *range.at_least) {
      return wrong(place, "has {} {}; it takes at least {}", count, what, *range.at_least);
    }
    if (range.at_most && count > *range.at_most) {
      return wrong(place, "has {} {}; it takes at most {}", count, what, *range.at_most);
    }
    return true;
  }

  bool fits_object(const Node& node, const json::object& object, const Place& place) {
    for (const auto& member : object) {
      const std::string_view key(member.key().data(), member.key().size());
      const Place inside{&place, key, 0, false};
      const auto found = node.properties.find(key);
      if (found != node.properties.end()) {
        if (!fits(found->second, member.value(), inside)) return false;
      } else if (node.additional) {
        if (nodes_[*node.additional].never) {
          budget_.spend();
          return trying_ == 0 && fail(JsonMismatch::Kind::unknown_property, inside, known(node));
        }
        if (!fits(*node.additional, member.value(), inside)) return false;
      }
    }
    for (const std::string& name : node.required) {
      budget_.spend();
      if (!object.contains(name)) {
        return fail(JsonMismatch::Kind::missing_property, Place{&place, name, 0, false}, "");
      }
    }
    return fits_range(node.property_count, object.size(), "members", place);
  }

  static std::string known(const Node& node) {
    std::string names;
    for (const std::string& name : node.property_names) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", escape_for_display(name, 80));
    }
    return names;
  }

  bool fits_array(const Node& node, const json::array& array, const Place& place) {
    if (!fits_range(node.item_count, array.size(), "items", place)) return false;
    for (std::size_t index = 0; index < array.size(); ++index) {
      const Place inside{&place, {}, index, true};
      if (index < node.prefix_items.size()) {
        if (!fits(node.prefix_items[index], array[index], inside)) return false;
      } else if (node.items) {
        if (!fits(*node.items, array[index], inside)) return false;
      } else {
        break;
      }
    }
    return !node.unique_items || fits_unique(array, place);
  }

  bool fits_unique(const json::array& array, const Place& place) {
    std::vector<const json::value*> items;
    items.reserve(array.size());
    for (const json::value& item : array) items.push_back(&item);
    budget_.spend(items.size());
    const auto order = [this](const json::value* left, const json::value* right) {
      return schema::compare(*left, *right, budget_);
    };
    std::ranges::sort(items, [&](const auto* a, const auto* b) { return order(a, b) < 0; });
    const auto twice = std::ranges::adjacent_find(
        items, [&](const auto* a, const auto* b) { return order(a, b) == 0; });
    return twice == items.end() || wrong(place, "has an item twice");
  }

  bool fits_string(const Node& node, const json::string& text, const Place& place) {
    if (!node.length.at_least && !node.length.at_most) return true;
    budget_.spend(text.size() / 64);
    const auto characters = std::ranges::count_if(
        text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
    return fits_range(node.length, static_cast<std::uint64_t>(characters), "characters", place);
  }

  bool fits_number(const Node& node, const json::value& value, const Place& place) {
    const auto compared = [&](const json::value& bound) {
      return schema::compare(value, bound, budget_);
    };
    if (node.minimum && compared(*node.minimum) < 0) {
      return wrong(place, "must be at least {}", number_text(*node.minimum));
    }
    if (node.maximum && compared(*node.maximum) > 0) {
      return wrong(place, "must be at most {}", number_text(*node.maximum));
    }
    if (node.above && compared(*node.above) <= 0) {
      return wrong(place, "must be above {}", number_text(*node.above));
    }
    if (node.below && compared(*node.below) >= 0) {
      return wrong(place, "must be below {}", number_text(*node.below));
    }
    if (node.multiple_of && !is_multiple(value, *node.multiple_of)) {
      return wrong(place, "must be a multiple of {}", *node.multiple_of);
    }
    return true;
  }

  static bool is_multiple(const json::value& value, std::int64_t of) {
    if (value.is_int64()) return value.get_int64() % of == 0;
    if (value.is_uint64()) return value.get_uint64() % static_cast<std::uint64_t>(of) == 0;
    return std::fmod(static_cast<long double>(value.get_double()), static_cast<long double>(of)) ==
           0;
  }

  bool fits_combined(const Node& node, const json::value& value, const Place& place) {
    if (node.reference && !fits(*node.reference, value, place)) return false;
    for (const NodeId each : node.all_of) {
      if (!fits(each, value, place)) return false;
    }
    if (!node.any_of.empty() &&
        std::ranges::none_of(node.any_of, [&](NodeId each) { return tried(each, value, place); })) {
      return wrong(place, "fits none of the alternatives");
    }
    if (!node.exactly_one_of.empty()) {
      const auto fitting = std::ranges::count_if(
          node.exactly_one_of, [&](NodeId each) { return tried(each, value, place); });
      if (fitting != 1) {
        return wrong(place, "fits {} of the alternatives", fitting == 0 ? "none" : "more than one");
      }
    }
    if (node.negated && tried(*node.negated, value, place)) return wrong(place, "is not allowed");
    return true;
  }

  const std::vector<Node>& nodes_;
  schema::Budget budget_;
  // Alternatives that are being tried around what is looked at.
  int trying_ = 0;
  std::optional<JsonMismatch> mismatch_;
};

// A predicate about one, as it is said of several.
std::string of_several(std::string_view what) {
  constexpr std::pair<std::string_view, std::string_view> kVerbs[] = {
      {"has ", "have "}, {"is ", "are "}, {"fits ", "fit "}};
  for (const auto& [one, several] : kVerbs) {
    if (what.starts_with(one)) return fmt::format("{}{}", several, what.substr(one.size()));
  }
  return std::string(what);
}

}  // namespace

std::string JsonMismatch::sentence(std::string_view noun) const {
  switch (kind) {
    case Kind::unknown_property:
      return what.empty() ? fmt::format("there is no {} '{}'.", noun, path)
                          : fmt::format("there is no {} '{}'; there is {}.", noun, path, what);
    case Kind::missing_property:
      return fmt::format("{} '{}' is missing.", noun, path);
    case Kind::wrong_value:
    case Kind::too_costly:
      break;
  }
  if (!path.empty()) return fmt::format("{} '{}' {}.", noun, path, what);
  return fmt::format("the {}s {}.", noun, of_several(what));
}

JsonSchema::JsonSchema(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

JsonSchema JsonSchema::parse(std::string_view text) {
  json::value schema;
  try {
    schema = parse_json(text, {.max_bytes = kMaxBytes});
  } catch (const JsonError& error) {
    throw JsonSchemaError(fmt::format("it is no JSON: {}", error.what()));
  }
  return JsonSchema(
      std::make_shared<const Compiled>(Compiled{std::string(text), schema::compile(schema)}));
}

std::optional<JsonMismatch> JsonSchema::check(const json::value& value) const {
  return Check(compiled_->nodes).root(value);
}

const std::string& JsonSchema::text() const { return compiled_->text; }

}  // namespace casemate
