#include "apps/casemate/config_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/casemate/option_parser.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

std::string ConfigPlace::where(const TomlValue& value) const {
  return fmt::format("{}:{}", name_, value.line);
}

void ConfigPlace::refuse(const TomlValue& value, std::string_view what,
                         const std::string& hint) const {
  throw ConfigInvalid(fmt::format("{}: {}", where(value), what), hint);
}

void ConfigPlace::refuse_unknown_key(const TomlValue& value, std::string_view key,
                                     std::string_view table,
                                     const std::vector<std::string>& known) const {
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  refuse(value, fmt::format("unknown key '{}'{}", escape_for_display(key), table),
         nearest_or(key, candidates, fmt::format("there are: {}", fmt::join(candidates, ", "))));
}

void ConfigPlace::refuse_kind(const TomlValue& value, std::string_view key, std::string_view taken,
                              const std::string& hint) const {
  refuse(value, fmt::format("{} is {}, and takes {}", key, kind_in_words(value.kind), taken), hint);
}

void ConfigPlace::expect_table(const TomlValue& value, std::string_view header) const {
  if (value.kind == TomlValue::Kind::table) return;
  refuse(value, fmt::format("{} is {}, and has to be a table", header, kind_in_words(value.kind)),
         fmt::format("write [{}] and its keys below", header));
}

void ConfigPlace::refuse_nul(const TomlValue& value, std::string_view key,
                             const std::string& hint) const {
  if (value.text.find('\0') != value.text.npos) {
    refuse(value, fmt::format("{} holds a NUL character", key), hint);
  }
}

}  // namespace casemate::app
