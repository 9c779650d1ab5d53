#include "apps/casemate/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "apps/casemate/config_owner.h"
#include "apps/casemate/config_place.h"
#include "apps/casemate/host_tool_config.h"
#include "apps/casemate/toml_file.h"
#include "apps/casemate/values.h"
#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/microvm/microvm_backend.h"
#include "casemate/backends/oci/oci_backend.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::app {

namespace {

using Kind = TomlValue::Kind;

// Far more than anybody writes, little enough to read and parse at every start.
// A century is for ever.
constexpr std::uint64_t kMaxImageKeepDays = 36500;
constexpr std::size_t kMaxFileBytes = 1024 * 1024;

constexpr auto kLinuxKeys = std::to_array<std::string_view>(
    {"state_dir", "image_dir", "image_keep_days", "image_store_size"});
constexpr auto kOciKeys = std::to_array<std::string_view>({"state_dir", "runtime"});
constexpr auto kDockerKeys = std::to_array<std::string_view>(
    {"host", "image", "platform", "pull", "runtime", "state_dir", "tls_dir"});
constexpr auto kMicrovmKeys = std::to_array<std::string_view>(
    {"state_dir", "kernel_root", "qemu", "accelerator", "machine", "save_machines"});

// What the table of an engine may hold.
struct EngineKeys {
  std::string_view engine;
  std::span<const std::string_view> keys;
};

constexpr auto kEngines = std::to_array<EngineKeys>({{kLinuxBackendName, kLinuxKeys},
                                                     {kOciBackendName, kOciKeys},
                                                     {kDockerBackendName, kDockerKeys},
                                                     {kMicrovmBackendName, kMicrovmKeys}});

struct NamedFile {
  std::string path;
  bool may_be_missing;
  // The variable that says where it is, when it has its usual name.
  std::string_view variable{};
};

std::optional<NamedFile> name_file(const ParsedLine& line, const HostVariable& host_variable) {
  if (line.typed("--config")) {
    std::string path = line.value_or("--config", "");
    if (path.empty()) throw InvalidArgument("--config is empty", "give the path of a TOML file");
    return NamedFile{std::move(path), false};
  }
  // An empty variable is one that was meant to be unset.
  const auto variable = [&](const char* name) { return host_variable(name).value_or(""); };
  if (std::string path = variable("CASEMATE_CONFIG"); !path.empty()) {
    // A variable outlives a change of directory: a cloned repository must not configure the host.
    if (path.front() != '/') {
      throw ConfigInvalid(
          fmt::format("CASEMATE_CONFIG is '{}', a relative path", escape_for_display(path)),
          "give an absolute path there, or use --config");
    }
    return NamedFile{std::move(path), false};
  }
  // The XDG specification has relative directories ignored.
  if (const std::string home = variable("XDG_CONFIG_HOME"); home.starts_with('/')) {
    return NamedFile{home + "/casemate/casemate.toml", true, "XDG_CONFIG_HOME"};
  }
  if (const std::string home = variable("HOME"); home.starts_with('/')) {
    return NamedFile{home + "/.config/casemate/casemate.toml", true, "HOME"};
  }
  return std::nullopt;
}

std::optional<std::string> read_file(const NamedFile& file,
                                     const std::optional<std::string>& home) {
  const auto refuse = [&file](std::string_view why) {
    throw ConfigInvalid(
        fmt::format("'{}' cannot be read: {}", escape_for_display(file.path), why),
        file.variable.empty()
            ? std::string("name a TOML file with --config or CASEMATE_CONFIG")
            : fmt::format("set {} to a directory of yours, or name a TOML file with --config or "
                          "CASEMATE_CONFIG, or remove what stands in its place",
                          file.variable));
  };
  const sys::UniqueFd opened(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!opened) {
    if (file.may_be_missing && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
    refuse(std::strerror(errno));
  }
  refuse_what_others_may_write(opened.get(), file.path, home);
  std::string bytes;
  std::array<char, 16 * 1024> piece;
  for (;;) {
    const ssize_t count = ::read(opened.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(std::strerror(errno));
    if (count == 0) return bytes;
    bytes.append(piece.data(), static_cast<std::size_t>(count));
    if (bytes.size() > kMaxFileBytes) {
      refuse(fmt::format("it has more than {} bytes", kMaxFileBytes));
    }
  }
}

// The tables of one file, checked one by one.
class Reader {
 public:
  Reader(std::string_view name, std::span<const VerbSpec* const> verbs)
      : place_(name), verbs_(verbs) {}

  Config read(const TomlValue& root) {
    for (const auto& [key, value] : root.entries) read_table(key, value);
    return std::move(config_);
  }

 private:
  struct Key {
    std::string name;
    const OptionSpec* option;
  };

  // What another table takes under that name is told as that, anything else with the nearest.
  [[noreturn]] void refuse_unknown_key(const TomlValue& value, std::string_view key,
                                       const std::string& table,
                                       const std::vector<std::string>& known) const {
    const std::vector<std::string> tables =
        value.kind == Kind::table ? std::vector<std::string>() : tables_with(key);
    if (tables.empty()) place_.refuse_unknown_key(value, key, table, known);
    std::string list = tables.front();
    for (std::size_t at = 1; at < tables.size(); ++at) {
      list += (at + 1 == tables.size() ? " or " : ", ") + tables[at];
    }
    place_.refuse(value, fmt::format("unknown key '{}'{}", escape_for_display(key), table),
                  "put it under " + list);
  }

  [[noreturn]] void refuse_unknown_engine_key(const TomlValue& value, std::string_view key,
                                              std::string_view engine) const {
    const auto* const found = std::ranges::find(kEngines, engine, &EngineKeys::engine);
    refuse_unknown_key(value, key, fmt::format(" in [backends.{}]", engine),
                       {found->keys.begin(), found->keys.end()});
  }

  std::vector<std::string> tables_with(std::string_view key) const {
    std::vector<std::string> tables;
    for (const VerbSpec* verb : verbs_) {
      const std::vector<Key> keys = keys_of(*verb);
      if (std::ranges::find(keys, key, &Key::name) != keys.end()) {
        tables.push_back(fmt::format("[{}]", verb->name));
      }
    }
    for (const EngineKeys& one : kEngines) {
      if (std::ranges::find(one.keys, key) != one.keys.end()) {
        tables.push_back(fmt::format("[backends.{}]", one.engine));
      }
    }
    return tables;
  }

  // What the table of a verb may hold.
  static std::vector<Key> keys_of(const VerbSpec& verb) {
    std::vector<Key> keys;
    for (const OptionSpec& option : verb.options) {
      if (!option.name.starts_with("--") || option.name == kConfigOption.name) continue;
      keys.push_back({std::string(option.name.substr(2)), &option});
    }
    return keys;
  }

  void read_table(std::string_view key, const TomlValue& value) {
    std::vector<std::string> known;
    for (const VerbSpec* verb : verbs_) {
      if (keys_of(*verb).empty()) continue;
      if (verb->name == key) {
        place_.expect_table(value, key);
        return read_verb(*verb, value);
      }
      known.emplace_back(verb->name);
    }
    if (key == "host_tools") {
      config_.host_tools = read_host_tools(value, place_);
      return;
    }
    known.emplace_back("host_tools");
    refuse_unknown_key(value, key, "", known);
  }

  void read_verb(const VerbSpec& verb, const TomlValue& table) {
    const std::vector<Key> keys = keys_of(verb);
    const bool engines = verb.name == "backends";
    for (const auto& [key, value] : table.entries) {
      const auto found = std::ranges::find(keys, key, &Key::name);
      if (found != keys.end()) {
        read_option(verb.name, *found, value);
      } else if (engines && value.kind == Kind::table) {
        read_engine(key, value);
      } else {
        std::vector<std::string> known;
        known.reserve(keys.size());
        for (const Key& one : keys) known.push_back(one.name);
        refuse_unknown_key(value, key, fmt::format(" in [{}]", verb.name), known);
      }
    }
  }

  void read_engine(const std::string& engine, const TomlValue& table) {
    if (engine == kOciBackendName) return read_oci(table);
    if (engine == kDockerBackendName) return read_docker(table);
    if (engine == kMicrovmBackendName) return read_microvm(table);
    if (engine != kLinuxBackendName) {
      std::vector<std::string> known;
      for (const EngineKeys& one : kEngines) known.emplace_back(one.engine);
      place_.refuse_unknown_key(table, engine, " in [backends]", known);
    }
    for (const auto& [key, value] : table.entries) {
      if (key == "state_dir" || key == "image_dir") {
        (key == "state_dir" ? config_.linux_state_dir : config_.linux_image_dir) =
            read_directory(key, value);
      } else if (key == "image_keep_days") {
        if (value.kind != Kind::integer) {
          place_.refuse_kind(value, key, "a whole number", "for example image_keep_days = 30");
        }
        const auto days =
            read_number(value, [&] { return parse_count(key, value.text, 0, kMaxImageKeepDays); });
        config_.linux_image_keep = std::chrono::days(days);
      } else if (key == "image_store_size") {
        if (value.kind != Kind::text && value.kind != Kind::integer) {
          place_.refuse_kind(value, key, "a string or a whole number",
                             "for example image_store_size = \"20G\"");
        }
        config_.linux_image_store_bytes =
            read_number(value, [&] { return parse_size(key, value.text, 1); });
      } else {
        refuse_unknown_engine_key(value, key, engine);
      }
    }
  }

  // Images are in the store of [backends.linux].
  void read_oci(const TomlValue& table) {
    for (const auto& [key, value] : table.entries) {
      if (key == "state_dir") {
        config_.oci_state_dir = read_directory(key, value);
      } else if (key == "runtime") {
        config_.oci_runtime = read_program(key, value, "crun");
      } else {
        refuse_unknown_engine_key(value, key, kOciBackendName);
      }
    }
  }

  void read_docker(const TomlValue& table) {
    for (const auto& [key, value] : table.entries) {
      if (key == "state_dir" || key == "tls_dir") {
        config_.docker[key] = read_directory(key, value);
      } else if (key == "host" || key == "image" || key == "platform" || key == "runtime" ||
                 key == "pull") {
        config_.docker[key] = read_docker_word(key, value);
      } else {
        refuse_unknown_engine_key(value, key, kDockerBackendName);
      }
    }
  }

  void read_microvm(const TomlValue& table) {
    for (const auto& [key, value] : table.entries) {
      if (key == "state_dir") {
        config_.microvm_state_dir = read_directory(key, value);
      } else if (key == "kernel_root") {
        config_.microvm_kernel_root = read_directory(key, value);
      } else if (key == "qemu") {
        config_.microvm_qemu = read_program(key, value, "qemu-system-x86_64");
      } else if (key == "accelerator") {
        config_.microvm_accelerator = read_choice(key, value, kAccelerators);
      } else if (key == "machine") {
        config_.microvm_machine = read_choice(key, value, kMachines);
      } else if (key == "save_machines") {
        if (value.kind != Kind::flag) {
          place_.refuse_kind(value, key, "true or false", "for example save_machines = false");
        }
        config_.microvm_saves_machines = value.flag;
      } else {
        refuse_unknown_engine_key(value, key, kMicrovmBackendName);
      }
    }
  }

  std::string read_choice(const std::string& key, const TomlValue& value,
                          std::span<const std::string_view> known) {
    if (value.kind != Kind::text) {
      place_.refuse_kind(value, key, "a string",
                         fmt::format("for example {} = \"{}\"", key, known[0]));
    }
    if (std::ranges::find(known, value.text) == known.end()) {
      place_.refuse(value, fmt::format("{} cannot be '{}'", key, escape_for_display(value.text)),
                    fmt::format("give one of: {}", fmt::join(known, ", ")));
    }
    return value.text;
  }

  std::string read_program(const std::string& key, const TomlValue& value, std::string_view one) {
    const std::string example = fmt::format("for example {} = \"{}\"", key, one);
    if (value.kind != Kind::text) place_.refuse_kind(value, key, "a string", example);
    const bool relative = value.text.find('/') != value.text.npos && !value.text.starts_with('/');
    if (value.text.empty() || relative || value.text.find('\0') != value.text.npos) {
      place_.refuse(value, fmt::format("{} cannot be '{}'", key, escape_for_display(value.text)),
                    "give the name of a program, or its absolute path");
    }
    return value.text;
  }

  std::string read_docker_word(const std::string& key, const TomlValue& value) {
    const std::string example = key == "host"   ? "for example host = \"unix:///run/docker.sock\""
                                : key == "pull" ? "pull = \"missing\" or pull = \"never\""
                                                : fmt::format("for example {} = \"...\"", key);
    if (value.kind != Kind::text) place_.refuse_kind(value, key, "a string", example);
    const bool is_pull = value.text == "missing" || value.text == "never";
    if (value.text.empty() || value.text.find('\0') != value.text.npos ||
        (key == "pull" && !is_pull)) {
      place_.refuse(value, fmt::format("{} cannot be '{}'", key, escape_for_display(value.text)),
                    example);
    }
    return value.text;
  }

  std::string read_directory(const std::string& key, const TomlValue& value) {
    if (value.kind != Kind::text) {
      place_.refuse_kind(value, key, "a string",
                         key == "state_dir" ? "for example state_dir = \"/run/casemate\""
                         : key == "tls_dir" ? "for example tls_dir = \"/etc/docker/client\""
                                            : "for example image_dir = \"/srv/images\"");
    }
    if (!value.text.starts_with('/') || value.text.find('\0') != value.text.npos) {
      place_.refuse(value, fmt::format("{} cannot be '{}'", key, escape_for_display(value.text)),
                    "give the absolute path of a directory of yours");
    }
    return value.text;
  }

  // In the words of a command line, with the place.
  template <typename Parse>
  std::uint64_t read_number(const TomlValue& value, const Parse& parse) {
    try {
      return parse();
    } catch (const InvalidArgument& refusal) {
      place_.refuse(value, refusal.message(), refusal.hint());
    }
  }

  void read_option(std::string_view verb, const Key& key, const TomlValue& value) {
    const OptionSpec& option = *key.option;
    auto& defaults = config_.defaults[std::string(verb)];
    if (option.value.empty()) {
      if (value.kind != Kind::flag) refuse_type(key, value, "true or false");
      if (value.flag) defaults.push_back({std::string(option.name), {}, place_.where(value)});
      return;
    }
    if (option.repeat == Repeat::refused) {
      read_value(key, value, defaults);
      return;
    }
    if (value.kind != Kind::list) refuse_type(key, value, "an array of strings");
    for (const TomlValue& item : value.items) read_value(key, item, defaults);
  }

  void read_value(const Key& key, const TomlValue& value, std::vector<DefaultValue>& defaults) {
    const bool text = value.kind == Kind::text;
    const bool whole = value.kind == Kind::integer;
    switch (key.option->form) {
      case ValueForm::number:
        if (!whole && value.kind != Kind::real) refuse_type(key, value, "a number");
        break;
      case ValueForm::size:
        if (!text && !whole) refuse_type(key, value, "a string or a whole number");
        break;
      default:
        if (!text) refuse_type(key, value, "a string");
    }
    place_.refuse_nul(value, key.name, example(key));
    defaults.push_back({std::string(key.option->name), value.text, place_.where(value)});
  }

  [[noreturn]] void refuse_type(const Key& key, const TomlValue& value,
                                std::string_view taken) const {
    place_.refuse_kind(value, key.name, taken, example(key));
  }

  // The example is a shell's line: the value is the word behind the option, in quotes or not.
  static std::string_view value_in_example(const OptionSpec& option) {
    std::string_view rest = option.example;
    rest.remove_prefix(rest.find(option.name) + option.name.size() + 1);
    const bool quoted = rest.starts_with('\'');
    if (quoted) rest.remove_prefix(1);
    return rest.substr(0, rest.find(quoted ? '\'' : ' '));
  }

  // The option's example as the file has it.
  static std::string example(const Key& key) {
    const OptionSpec& option = *key.option;
    if (option.value.empty()) return fmt::format("for example {} = true", key.name);
    const std::string_view typed = value_in_example(option);
    std::string value =
        option.form == ValueForm::number ? std::string(typed) : fmt::format("\"{}\"", typed);
    if (option.repeat == Repeat::allowed) value = fmt::format("[{}]", value);
    return fmt::format("for example {} = {}", key.name, value);
  }

  ConfigPlace place_;
  std::span<const VerbSpec* const> verbs_;
  Config config_;
};

}  // namespace

std::vector<DefaultValue> Config::defaults_of(std::string_view verb) const {
  const auto found = defaults.find(verb);
  return found == defaults.end() ? std::vector<DefaultValue>{} : found->second;
}

Config parse_config(std::string_view text, std::string_view name,
                    std::span<const VerbSpec* const> verbs) {
  return Reader(name, verbs).read(parse_toml(text, name));
}

Config load_config(const ParsedLine& line, const HostVariable& host_variable,
                   std::span<const VerbSpec* const> verbs) {
  const auto file = name_file(line, host_variable);
  if (!file) return {};
  const auto text = read_file(*file, host_variable("HOME"));
  if (!text) return {};
  return parse_config(*text, escape_for_display(file->path, 4096), verbs);
}

void read_line(const ParsedLine& line, const std::function<void(const ParsedLine&)>& read) {
  try {
    read(line);
  } catch (const InvalidArgument& refused) {
    // To blame is the default without which this refusal does not come.
    for (std::size_t at = 0; at < line.defaults().size(); ++at) {
      try {
        read(line.without_default(at));
      } catch (const InvalidArgument& other) {
        if (other.message() == refused.message()) continue;
      }
      throw ConfigInvalid(fmt::format("{}: {}", line.defaults()[at].where, refused.message()),
                          refused.hint());
    }
    throw;
  }
}

}  // namespace casemate::app
