#include "apps/casemate/host_tool_config.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "apps/casemate/option_parser.h"
#include "apps/casemate/values.h"
#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

namespace json = boost::json;
using Kind = TomlValue::Kind;

// As many as may run at once in one run.
constexpr std::uint64_t kMaxConcurrency = 32;

// Said aloud, where a leg has no value: TOML knows no null.
constexpr std::string_view kNone = "none";

template <typename Number>
Number number(const std::string& text) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

class Reader {
 public:
  Reader(const std::string& name, const ConfigPlace& place)
      : place_(place), header_(fmt::format("host_tools.{}", escape_for_display(name))) {
    setting_.name = name;
  }

  HostToolSetting read(const TomlValue& table) {
    place_.expect_table(table, header_);
    setting_.where = place_.where(table);
    for (const auto& [key, value] : table.entries) read_key(key, value);
    if (setting_.command.empty()) {
      place_.refuse(table, fmt::format("[{}] has no command", header_), example("command"));
    }
    read_declaration(table);
    return std::move(setting_);
  }

 private:
  // The keys, and each as it could be written.
  static constexpr auto kKeys = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"command", "\"./lookup --table stores\""},
      {"source", "\"trusted\", \"untrusted\" or \"none\""},
      {"sink", "\"internal\", or \"none\" where it carries nothing out"},
      {"identity", "\"app\" or \"none\""},
      {"description", "\"Looks a store up.\""},
      {"parameters", "{ type = \"object\", required = [\"store\"] }"},
      {"timeout", "2.5"},
      {"max_concurrency", "4"},
  });

  static std::string example(std::string_view key) {
    for (const auto& [name, value] : kKeys) {
      if (name == key) return fmt::format("for example {} = {}", name, value);
    }
    return {};
  }

  const std::string& text(std::string_view key, const TomlValue& value) const {
    if (value.kind != Kind::text) place_.refuse_kind(value, key, "a string", example(key));
    place_.refuse_nul(value, key, example(key));
    return value.text;
  }

  // A value of an option's kind, refused in an option's words.
  void checked(const TomlValue& value, const std::function<void()>& read) const {
    try {
      read();
    } catch (const InvalidArgument& refused) {
      place_.refuse(value, refused.message(), refused.hint());
    }
  }

  void read_key(const std::string& key, const TomlValue& value) {
    if (key == "command") {
      setting_.command = text(key, value);
      if (setting_.command.empty()) place_.refuse(value, "command is empty", example(key));
    } else if (key == "description") {
      setting_.description = text(key, value);
    } else if (key == "parameters") {
      read_parameters(value);
    } else if (key == "source" || key == "sink" || key == "identity") {
      text(key, value);
      (key == "source" ? source_ : key == "sink" ? sink_ : identity_) = &value;
    } else if (key == "timeout") {
      if (value.kind != Kind::integer && value.kind != Kind::real) {
        place_.refuse_kind(value, key, "a number", example(key));
      }
      checked(value, [&] { setting_.timeout = parse_seconds(key, value.text); });
    } else if (key == "max_concurrency") {
      if (value.kind != Kind::integer) {
        place_.refuse_kind(value, key, "a whole number", example(key));
      }
      checked(value,
              [&] { setting_.max_concurrency = parse_count(key, value.text, 1, kMaxConcurrency); });
    } else {
      std::vector<std::string> known;
      known.reserve(kKeys.size());
      for (const auto& [name, shown] : kKeys) known.emplace_back(name);
      place_.refuse_unknown_key(value, key, fmt::format(" in [{}]", header_), known);
    }
  }

  // A stamp answers all three questions or is none: what is left out would be a guess.
  void read_declaration(const TomlValue& table) {
    if (source_ == nullptr && sink_ == nullptr && identity_ == nullptr) return;
    const auto needed = [&](const TomlValue* leg, std::string_view key) -> const TomlValue& {
      if (leg == nullptr) {
        place_.refuse(table,
                      fmt::format("[{}] answers not all of source, sink and identity: {} is "
                                  "missing",
                                  header_, key),
                      example(key));
      }
      return *leg;
    };
    const TomlValue& source = needed(source_, "source");
    const TomlValue& sink = needed(sink_, "sink");
    const TomlValue& identity = needed(identity_, "identity");
    HostToolDeclaration declaration{std::nullopt, std::nullopt, std::nullopt};
    static constexpr std::array<std::string_view, 3> kSources = {"trusted", "untrusted", kNone};
    static constexpr std::array<std::string_view, 3> kIdentities = {"app", "user", kNone};
    checked(source, [&] { one_of("source", source.text, kSources); });
    checked(identity, [&] { one_of("identity", identity.text, kIdentities); });
    if (source.text != kNone) declaration.source = parse_source_integrity(source.text);
    if (sink.text.empty()) place_.refuse(sink, "sink is empty", example("sink"));
    if (sink.text != kNone) declaration.sink = sink.text;
    if (identity.text != kNone) declaration.identity = parse_identity(identity.text);
    setting_.identity_where = place_.where(identity);
    setting_.declaration = declaration;
  }

  void read_parameters(const TomlValue& value) {
    setting_.parameters_where = place_.where(value);
    if (value.kind == Kind::text) {
      try {
        setting_.parameters = serialise_json(parse_json(value.text));
      } catch (const JsonError& error) {
        place_.refuse(value, fmt::format("parameters is no JSON: {}", error.what()),
                      example("parameters"));
      }
      return;
    }
    if (value.kind != Kind::table) {
      place_.refuse_kind(value, "parameters", "a table or a string of JSON", example("parameters"));
    }
    setting_.parameters = serialise_json(as_json(value));
  }

  json::value as_json(const TomlValue& value) const {
    switch (value.kind) {
      case Kind::text:
        return json::value(value.text);
      case Kind::integer:
        return json::value(number<std::int64_t>(value.text));
      case Kind::flag:
        return json::value(value.flag);
      case Kind::real:
        if (value.text.find_first_of("in") == std::string::npos) {  // inf, nan
          return json::value(number<double>(value.text));
        }
        break;
      case Kind::list: {
        json::array list;
        for (const TomlValue& item : value.items) list.push_back(as_json(item));
        return list;
      }
      case Kind::table: {
        json::object object;
        for (const auto& [key, item] : value.entries) object.emplace(key, as_json(item));
        return object;
      }
      case Kind::time:
        break;
    }
    place_.refuse(value,
                  fmt::format("parameters holds {}, which JSON cannot",
                              value.kind == Kind::time ? "a date or time" : value.text),
                  example("parameters"));
  }

  const ConfigPlace& place_;
  std::string header_;
  HostToolSetting setting_;
  const TomlValue* source_ = nullptr;
  const TomlValue* sink_ = nullptr;
  const TomlValue* identity_ = nullptr;
};

}  // namespace

std::vector<HostToolSetting> read_host_tools(const TomlValue& table, const ConfigPlace& place) {
  place.expect_table(table, "host_tools");
  std::vector<HostToolSetting> settings;
  settings.reserve(table.entries.size());
  for (const auto& [name, value] : table.entries) {
    settings.push_back(Reader(name, place).read(value));
  }
  return settings;
}

}  // namespace casemate::app
