#pragma once

// Host tools on plain structs: the schema of the arguments is derived from the list of fields, and
// arguments and result are converted.
//
//   struct StoreQuery {
//     std::string state;
//     std::optional<std::int64_t> limit;
//     static auto fields() {
//       return std::tuple(field("state", &StoreQuery::state, "two letters"),
//                         field("limit", &StoreQuery::limit, "at most so many"));
//     }
//   };
//   registry.register_tool(typed_host_tool<StoreQuery>("stores", "Stores of a state.",
//   list_stores));
//
// Fields and results may be bool, integers, floating point, std::string, std::optional,
// std::vector, std::map with string keys, and structs with fields() of their own. A field is
// required unless it is a std::optional, for which null counts as absent. Unknown arguments are
// refused. The one public header that needs all of Boost.JSON: templates convert here.

#include <boost/json.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "casemate/base/json.h"
#include "casemate/host_tools/registry.h"

namespace casemate {

template <typename Struct, typename Value>
struct HostToolField {
  std::string_view name;
  Value Struct::* member;
  std::string_view description;
};

// `name` and `description` are string literals.
template <typename Struct, typename Value>
constexpr HostToolField<Struct, Value> field(std::string_view name, Value Struct::* member,
                                             std::string_view description = {}) {
  return {name, member, description};
}

template <typename T>
concept HostToolStruct = requires { T::fields(); };

// How one type stands in JSON. Specialise it for a type of your own: `schema` gives an object with
// a `type`, `read` gets a value that fits it.
template <typename T>
struct HostToolJson;

template <>
struct HostToolJson<bool> {
  static boost::json::object schema() { return {{"type", "boolean"}}; }
  static bool read(const boost::json::value& value) { return value.get_bool(); }
  static boost::json::value write(bool value) { return value; }
};

template <std::integral T>
struct HostToolJson<T> {
  static boost::json::object schema() {
    return {{"type", "integer"},
            {"minimum", std::numeric_limits<T>::min()},
            {"maximum", std::numeric_limits<T>::max()}};
  }
  // 3.0 is an integer too.
  static T read(const boost::json::value& value) {
    if (value.is_double()) return static_cast<T>(value.get_double());
    return value.is_uint64() ? static_cast<T>(value.get_uint64())
                             : static_cast<T>(value.get_int64());
  }
  static boost::json::value write(T value) { return value; }
};

template <std::floating_point T>
struct HostToolJson<T> {
  static boost::json::object schema() { return {{"type", "number"}}; }
  static T read(const boost::json::value& value) { return value.to_number<T>(); }
  static boost::json::value write(T value) { return static_cast<double>(value); }
};

template <>
struct HostToolJson<std::string> {
  static boost::json::object schema() { return {{"type", "string"}}; }
  static std::string read(const boost::json::value& value) {
    return std::string(value.get_string());
  }
  static boost::json::value write(const std::string& value) { return boost::json::string(value); }
};

template <typename T>
struct HostToolJson<std::optional<T>> {
  static boost::json::object schema() {
    boost::json::object schema = HostToolJson<T>::schema();
    schema["type"] = boost::json::array{schema.at("type"), "null"};
    return schema;
  }
  static std::optional<T> read(const boost::json::value& value) {
    if (value.is_null()) return std::nullopt;
    return HostToolJson<T>::read(value);
  }
  static boost::json::value write(const std::optional<T>& value) {
    return value ? HostToolJson<T>::write(*value) : boost::json::value(nullptr);
  }
};

template <typename T>
struct HostToolJson<std::vector<T>> {
  static boost::json::object schema() {
    return {{"type", "array"}, {"items", HostToolJson<T>::schema()}};
  }
  static std::vector<T> read(const boost::json::value& value) {
    std::vector<T> items;
    for (const auto& item : value.get_array()) items.push_back(HostToolJson<T>::read(item));
    return items;
  }
  static boost::json::value write(const std::vector<T>& value) {
    boost::json::array items;
    for (const T& item : value) items.push_back(HostToolJson<T>::write(item));
    return items;
  }
};

template <typename T>
struct HostToolJson<std::map<std::string, T>> {
  static boost::json::object schema() {
    return {{"type", "object"}, {"additionalProperties", HostToolJson<T>::schema()}};
  }
  static std::map<std::string, T> read(const boost::json::value& value) {
    std::map<std::string, T> members;
    for (const auto& member : value.get_object()) {
      members.emplace(member.key(), HostToolJson<T>::read(member.value()));
    }
    return members;
  }
  static boost::json::value write(const std::map<std::string, T>& value) {
    boost::json::object members;
    for (const auto& [key, item] : value) members[key] = HostToolJson<T>::write(item);
    return members;
  }
};

template <typename T>
inline constexpr bool kHostToolOptional = false;
template <typename T>
inline constexpr bool kHostToolOptional<std::optional<T>> = true;

template <HostToolStruct T>
struct HostToolJson<T> {
  static boost::json::object schema() {
    boost::json::object properties;
    boost::json::array required;
    each_field([&]<typename Value>(const HostToolField<T, Value>& field) {
      boost::json::object property = HostToolJson<Value>::schema();
      if (!field.description.empty()) property["description"] = field.description;
      properties[field.name] = std::move(property);
      if constexpr (!kHostToolOptional<Value>) required.emplace_back(field.name);
    });
    return {{"type", "object"},
            {"properties", std::move(properties)},
            {"required", std::move(required)},
            {"additionalProperties", false}};
  }

  static T read(const boost::json::value& value) {
    T result{};
    const boost::json::object& members = value.get_object();
    each_field([&]<typename Value>(const HostToolField<T, Value>& field) {
      if (const auto* member = members.if_contains(field.name)) {
        result.*field.member = HostToolJson<Value>::read(*member);
      }
    });
    return result;
  }

  static boost::json::value write(const T& value) {
    boost::json::object members;
    each_field([&]<typename Value>(const HostToolField<T, Value>& field) {
      members[field.name] = HostToolJson<Value>::write(value.*field.member);
    });
    return members;
  }

 private:
  template <typename Act>
  static void each_field(const Act& act) {
    std::apply([&](const auto&... fields) { (act(fields), ...); }, T::fields());
  }
};

// A tool whose function takes `Arguments` and, if it wants, the context, and returns anything that
// `HostToolJson` knows, or a `boost::json::value`. The rest of `HostTool` (declaration, timeout,
// max_concurrency) is the caller's to fill in.
template <HostToolStruct Arguments, typename Function>
HostTool typed_host_tool(std::string name, std::string description, Function function) {
  HostTool tool;
  tool.name = std::move(name);
  tool.description = std::move(description);
  tool.parameters = serialise_json(HostToolJson<Arguments>::schema());
  tool.function = [function = std::move(function)](
                      const boost::json::object& members,
                      const HostToolContext& context) -> boost::json::value {
    const Arguments arguments = HostToolJson<Arguments>::read(members);
    const auto call = [&] {
      if constexpr (std::is_invocable_v<const Function&, const Arguments&,
                                        const HostToolContext&>) {
        return std::invoke(function, arguments, context);
      } else {
        return std::invoke(function, arguments);
      }
    };
    using Result = std::decay_t<decltype(call())>;
    if constexpr (std::is_same_v<Result, boost::json::value>) {
      return call();
    } else {
      return HostToolJson<Result>::write(call());
    }
  };
  return tool;
}

}  // namespace casemate
