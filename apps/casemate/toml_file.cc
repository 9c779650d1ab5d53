#include "apps/casemate/toml_file.h"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

TomlValue convert(const toml::node& node, std::size_t line);

TomlValue convert_table(const toml::table& table) {
  TomlValue value;
  for (const auto& [key, node] : table) {
    value.entries.push_back({std::string(key.str()), convert(node, key.source().begin.line)});
  }
  return value;
}

TomlValue convert(const toml::node& node, std::size_t line) {
  TomlValue value;
  value.kind = TomlValue::Kind::time;  // dates and times, which nothing of ours takes
  if (const auto* table = node.as_table()) {
    value = convert_table(*table);
  } else if (const auto* array = node.as_array()) {
    value.kind = TomlValue::Kind::list;
    for (const toml::node& item : *array) {
      value.items.push_back(convert(item, item.source().begin.line));
    }
  } else if (const auto* text = node.as_string()) {
    value.kind = TomlValue::Kind::text;
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = TomlValue::Kind::integer;
    value.text = fmt::format("{}", integer->get());
  } else if (const auto* real = node.as_floating_point()) {
    value.kind = TomlValue::Kind::real;
    value.text = fmt::format("{}", real->get());
  } else if (const auto* flag = node.as_boolean()) {
    value.kind = TomlValue::Kind::flag;
    value.flag = flag->get();
  }
  value.line = line;
  return value;
}

}  // namespace

std::string_view kind_in_words(TomlValue::Kind kind) {
  switch (kind) {
    case TomlValue::Kind::text:
      return "a string";
    case TomlValue::Kind::integer:
    case TomlValue::Kind::real:
      return "a number";
    case TomlValue::Kind::flag:
      return "true or false";
    case TomlValue::Kind::time:
      return "a date or time";
    case TomlValue::Kind::list:
      return "an array";
    case TomlValue::Kind::table:
      return "a table";
  }
  return "nothing known";
}

TomlValue parse_toml(std::string_view text, std::string_view name) {
  try {
    return convert_table(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw ConfigInvalid(fmt::format("{}:{}: {}", name, error.source().begin.line,
                                    escape_for_display(error.description())),
                        "it has to be TOML, https://toml.io");
  }
}

}  // namespace casemate::app
