#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/casemate/toml_file.h"

namespace casemate::app {

// Refusals of what a configuration file says, each with the file and the line: `ConfigInvalid`.
class ConfigPlace {
 public:
  // `name` stands for the file, as it is to be shown.
  explicit ConfigPlace(std::string_view name) : name_(name) {}

  // FILE:LINE.
  std::string where(const TomlValue& value) const;

  [[noreturn]] void refuse(const TomlValue& value, std::string_view what,
                           const std::string& hint) const;

  // `table` as in " in [run]", or empty.
  [[noreturn]] void refuse_unknown_key(const TomlValue& value, std::string_view key,
                                       std::string_view table,
                                       const std::vector<std::string>& known) const;

  // "KEY is a number, and takes TAKEN".
  [[noreturn]] void refuse_kind(const TomlValue& value, std::string_view key,
                                std::string_view taken, const std::string& hint) const;

  // `header` as in "host_tools.lookup".
  void expect_table(const TomlValue& value, std::string_view header) const;

  // No word of a command line holds a NUL, so nothing expects one.
  void refuse_nul(const TomlValue& value, std::string_view key, const std::string& hint) const;

 private:
  std::string_view name_;
};

}  // namespace casemate::app
