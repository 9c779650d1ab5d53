#pragma once

// TOML as plain values that know their lines. The parser stays behind this header: it is heavy, and
// nothing of it may be touched by a start without a file.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::app {

struct TomlEntry;

struct TomlValue {
  enum class Kind { text, integer, real, flag, time, list, table };

  Kind kind = Kind::table;
  // Text, or a number as it would be typed ("60", "0.5").
  std::string text;
  bool flag = false;
  std::vector<TomlValue> items;
  // Sorted by key.
  std::vector<TomlEntry> entries;
  // From 1; that of the key where it has one.
  std::size_t line = 1;
};

struct TomlEntry {
  std::string key;
  TomlValue value;
};

// "a string", "a number", "true or false", ...
std::string_view kind_in_words(TomlValue::Kind kind);

// The table that `text` is. `name` stands for the file in refusals.
// Throws `ConfigInvalid` with `name:LINE` for text that is no TOML 1.0 (duplicate keys, bytes that
// are no UTF-8 and values nested too deeply among it).
TomlValue parse_toml(std::string_view text, std::string_view name);

}  // namespace casemate::app
