#include <algorithm>
#include <cmath>

#include "casemate/base/json_schema_nodes.h"

namespace casemate::schema {
namespace {

namespace json = boost::json;

// Holds every 64-bit integer and every double exactly: its mantissa has 64 bits or more on every
// processor that this runs on.
long double number_of(const json::value& value) {
  if (value.is_int64()) return static_cast<long double>(value.get_int64());
  if (value.is_uint64()) return static_cast<long double>(value.get_uint64());
  return static_cast<long double>(value.get_double());
}

int sign(int order) { return order < 0 ? -1 : (order > 0 ? 1 : 0); }

template <typename T>
int order_of(const T& left, const T& right) {
  return left < right ? -1 : (right < left ? 1 : 0);
}

// The order of types; all numbers are one.
int rank(const json::value& value) {
  const Types types = types_of(value);
  return (types & kNumber) != 0 ? kInteger : types;
}

using Members = std::vector<const json::key_value_pair*>;

Members sorted(const json::object& object, Budget& budget) {
  Members members;
  for (const auto& member : object) members.push_back(&member);
  budget.spend(members.size());
  std::ranges::sort(members, {}, [](const auto* member) { return member->key(); });
  return members;
}

}  // namespace

Types types_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return kNull;
    case json::kind::bool_:
      return kBoolean;
    case json::kind::object:
      return kObject;
    case json::kind::array:
      return kArray;
    case json::kind::string:
      return kString;
    case json::kind::int64:
    case json::kind::uint64:
      return kInteger;
    case json::kind::double_:
      break;
  }
  return value.get_double() == std::floor(value.get_double()) ? kInteger : kFraction;
}

int compare(const json::value& left, const json::value& right, Budget& budget) {
  budget.spend();
  if (const int order = order_of(rank(left), rank(right)); order != 0) return order;
  if (left.is_number()) return order_of(number_of(left), number_of(right));
  if (left.is_bool()) return order_of(left.get_bool(), right.get_bool());
  if (left.is_string()) {
    budget.spend(std::min(left.get_string().size(), right.get_string().size()) / 64);
    return sign(left.get_string().compare(right.get_string()));
  }
  if (left.is_array()) {
    const json::array& a = left.get_array();
    const json::array& b = right.get_array();
    if (const int order = order_of(a.size(), b.size()); order != 0) return order;
    for (std::size_t index = 0; index < a.size(); ++index) {
      if (const int order = compare(a[index], b[index], budget); order != 0) return order;
    }
    return 0;
  }
  if (!left.is_object()) return 0;
  const Members a = sorted(left.get_object(), budget);
  const Members b = sorted(right.get_object(), budget);
  if (const int order = order_of(a.size(), b.size()); order != 0) return order;
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (const int order = sign(a[index]->key().compare(b[index]->key())); order != 0) return order;
    const int order = compare(a[index]->value(), b[index]->value(), budget);
    if (order != 0) return order;
  }
  return 0;
}

}  // namespace casemate::schema
