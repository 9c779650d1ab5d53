#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/control.h"

namespace casemate::oci {

// Runtimes whose command lines are known to the backend. What a program is, it says itself
// (`--version`); what it is called decides nothing.
enum class RuntimeFamily : std::uint8_t { crun, runc, runsc };
std::string_view to_string(RuntimeFamily family);

struct Runtime {
  // Absolute.
  std::string path;
  RuntimeFamily family = RuntimeFamily::crun;
  // As it says it, "1.1.5+ds1"; printable.
  std::string version;
  friend bool operator==(const Runtime&, const Runtime&) = default;
};

// The program that a setting means: an absolute path as it stands, a name in the directories of
// `search` (separated by colons); empty, the first of crun, runc
// and runsc. Absent where there is none.
std::optional<std::string> find_program(std::string_view setting, std::string_view search);

// What the text of `--version` says. Absent for a program that is no runtime known here.
std::optional<Runtime> parse_version(std::string_view path, std::string_view text);

// Starts the program once, to ask. Throws `SandboxUnavailable` where it does not answer within ten
// seconds, or is none that is known; `SandboxTimeout` and `SandboxCancelled` by `control`.
Runtime ask_runtime(const std::string& path, const CallControl& control = {});

// Published faults of that version that concern every use of it, by their CVE numbers. A
// distributor may have mended them without another version: what is said is that of the version.
std::vector<std::string_view> known_faults(const Runtime& runtime);

}  // namespace casemate::oci
