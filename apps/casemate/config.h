#pragma once

// casemate.toml: defaults of the user's own.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/casemate/help.h"
#include "apps/casemate/host_tool_setting.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/option_parser.h"

namespace casemate::app {

// An option of every verb that reads the file.
// What runs a virtual machine, and what kind of machine it is; the first is the default.
inline constexpr std::array<std::string_view, 3> kAccelerators = {"auto", "kvm", "tcg"};
inline constexpr std::array<std::string_view, 2> kMachines = {"microvm", "q35"};

inline constexpr OptionSpec kConfigOption = {
    "--config",
    "FILE",
    Repeat::refused,
    "$CASEMATE_CONFIG, else casemate/casemate.toml in $XDG_CONFIG_HOME or ~/.config, if it is "
    "there",
    "read defaults from this file; never from the current directory by itself",
    "--config ci.toml",
    ValueForm::path};

// What the file says, names and types checked. Without a file: nothing.
struct Config {
  // By verb, in the file's order within an option.
  std::map<std::string, std::vector<DefaultValue>, std::less<>> defaults;
  // [backends.linux] state_dir, an absolute path.
  std::optional<std::string> linux_state_dir;
  // [backends.linux] image_dir, an absolute path.
  std::optional<std::string> linux_image_dir;
  // [backends.linux] image_keep_days (0: for ever) and image_store_size, as `CollectionRule` has
  // them.
  std::optional<std::chrono::seconds> linux_image_keep;
  std::optional<std::uint64_t> linux_image_store_bytes;
  // [backends.oci] state_dir, an absolute path, and runtime, a name or an absolute path.
  std::optional<std::string> oci_state_dir;
  std::optional<std::string> oci_runtime;
  // [backends.docker], as `DockerBackendOptions` has them: host, image, platform, runtime, tls_dir
  // and state_dir, an absolute path each of the last two; pull is "missing" or "never".
  std::map<std::string, std::string, std::less<>> docker;
  // [backends.microvm] state_dir, kernel_root, absolute paths; qemu, a name or an absolute path;
  // accelerator, one of `kAccelerators`; machine, one of `kMachines`; save_machines.
  std::optional<std::string> microvm_state_dir;
  std::optional<std::string> microvm_kernel_root;
  std::optional<std::string> microvm_qemu;
  std::optional<std::string> microvm_accelerator;
  std::optional<std::string> microvm_machine;
  std::optional<bool> microvm_saves_machines;
  // [host_tools.NAME], sorted by name.
  std::vector<HostToolSetting> host_tools;

  std::vector<DefaultValue> defaults_of(std::string_view verb) const;
};

// Reads the file that `--config`, CASEMATE_CONFIG or the user's configuration directory names, in
// this order. Only the last may be missing, and then nothing but one failed open is paid. A file
// that others may change is refused (config_owner.h).
//
// All of the file is checked, whatever verb runs: tables are verbs, `backends.NAME`,
// `host_tools.NAME` and nothing else; keys are the verb's long options without dashes (but not
// `config`). A flag takes true or false, a repeatable option an array. Values are checked later, as
// those of a command line. Throws `ConfigInvalid`: FILE:LINE, what is wrong, and the nearest key or
// an example.
Config load_config(const ParsedLine& line, const HostVariable& host_variable,
                   std::span<const VerbSpec* const> verbs);

// The same from text; `name` stands for the file in refusals.
Config parse_config(std::string_view text, std::string_view name,
                    std::span<const VerbSpec* const> verbs);

// Runs `read` on the line. A refusal of a value that casemate.toml gave is thrown as
// `ConfigInvalid`: FILE:LINE and the words that the same value typed would have met.
void read_line(const ParsedLine& line, const std::function<void(const ParsedLine&)>& read);

}  // namespace casemate::app
