#pragma once

// A schema as it is checked: every subschema a node, every reference an index. For base/ alone.

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/base/json_schema.h"

namespace casemate::schema {

// One bit a type; an integer has both bits of `kNumber`.
using Types = std::uint8_t;
inline constexpr Types kNull = 1;
inline constexpr Types kBoolean = 2;
inline constexpr Types kObject = 4;
inline constexpr Types kArray = 8;
inline constexpr Types kString = 16;
inline constexpr Types kInteger = 32;
inline constexpr Types kFraction = 64;
inline constexpr Types kNumber = kInteger | kFraction;
inline constexpr Types kAny = 127;

struct TypeName {
  std::string_view wire;
  Types types;
  // As a sentence says it.
  std::string_view phrase;
};

inline constexpr TypeName kTypeNames[] = {
    {"object", kObject, "an object"},
    {"array", kArray, "a list"},
    {"string", kString, "a string"},
    {"number", kNumber, "a number"},
    {"integer", kInteger, "an integer"},
    {"boolean", kBoolean, "true or false"},
    {"null", kNull, "null"},
};

// The bits of a value's type; a number without a fraction is an integer however it was written.
Types types_of(const boost::json::value& value);

using NodeId = std::size_t;

// How many of something there may be.
struct Range {
  std::optional<std::uint64_t> at_least;
  std::optional<std::uint64_t> at_most;
};

struct Node {
  // The schemas `true` and `false`.
  bool never = false;
  Types types = kAny;
  std::optional<boost::json::array> one_of_values;

  std::map<std::string, NodeId, std::less<>> properties;
  // In the schema's order.
  std::vector<std::string> property_names;
  std::vector<std::string> required;
  std::optional<NodeId> additional;
  Range property_count;

  std::vector<NodeId> prefix_items;
  std::optional<NodeId> items;
  Range item_count;
  bool unique_items = false;

  std::optional<boost::json::value> minimum;
  std::optional<boost::json::value> maximum;
  std::optional<boost::json::value> above;
  std::optional<boost::json::value> below;
  std::optional<std::int64_t> multiple_of;

  Range length;

  std::vector<NodeId> all_of;
  std::vector<NodeId> any_of;
  std::vector<NodeId> exactly_one_of;
  std::optional<NodeId> negated;
  std::optional<NodeId> reference;
};

// What a check may still do.
class Budget {
 public:
  struct Spent {};

  explicit Budget(std::uint64_t steps) : left_(steps) {}
  // Throws `Spent`.
  void spend(std::uint64_t steps = 1) {
    if (steps > left_) throw Spent();
    left_ -= steps;
  }

 private:
  std::uint64_t left_;
};

// A total order in which exactly the values that the standard calls equal are equal: numbers by
// their value, objects without regard to the order of members. Negative, zero or positive.
int compare(const boost::json::value& left, const boost::json::value& right, Budget& budget);

std::vector<Node> compile(const boost::json::value& schema);

}  // namespace casemate::schema

struct casemate::JsonSchema::Compiled {
  std::string text;
  // The first is the root.
  std::vector<schema::Node> nodes;
};
