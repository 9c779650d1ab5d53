#include "casemate/host_tools/over_exec_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"

namespace casemate {
namespace {

constexpr std::string_view kNul{"\0", 1};

constexpr std::array<std::string_view, 5> kMarksAndModules{
    kOverExecModule, kOverExecLauncher, kOverExecStdout, kOverExecStderr, kOverExecCalls};
// Staged: with and without the suffix.
constexpr std::array<std::string_view, 3> kStaged{kOverExecExitCode, kOverExecPid,
                                                  kOverExecSession};

// Modules that a file beside the program must not stand in for.
constexpr std::array<std::string_view, 17> kTakenModules{
    // ours, and what it imports
    "casemate_tools", "json", "os", "time",
    // what the interpreter loads before the program; PYTHONPATH names the directory
    "encodings", "site", "sitecustomize", "usercustomize", "abc", "codecs", "genericpath", "io",
    "posixpath", "stat", "_collections_abc", "_sitebuiltins", "_bootlocale"};

std::string shown(std::string_view text) { return escape_for_display(text, 120); }

[[noreturn]] void refuse_directory(std::string_view directory, std::string_view why) {
  throw InvalidArgument(fmt::format("run directory '{}' {}", shown(directory), why),
                        "use an absolute path in the guest, without ':' and backslashes");
}

[[noreturn]] void refuse_program(std::string_view program, std::string_view why) {
  throw InvalidArgument(fmt::format("program name '{}' {}", shown(program), why),
                        "use a plain file name of its own, like program.py");
}

bool is_transport_name(std::string_view program) {
  if (std::ranges::find(kMarksAndModules, program) != kMarksAndModules.end()) return true;
  if (program.ends_with(kOverExecPartSuffix)) program.remove_suffix(kOverExecPartSuffix.size());
  return std::ranges::find(kStaged, program) != kStaged.end();
}

// The module as which Python imports a file of that name; empty for none.
std::string_view answers_to(std::string_view program) {
  const std::size_t first = program.find('.');
  if (first == std::string_view::npos) return {};
  const std::string_view head = program.substr(0, first);
  const std::size_t last = program.rfind('.');
  const std::string_view suffix = program.substr(last + 1);
  const bool is_library = suffix == "so" || suffix == "pyd";
  if (first != last) return is_library ? head : std::string_view();
  return is_library || suffix == "py" || suffix == "pyc" || suffix == "pyw" ? head
                                                                            : std::string_view();
}

std::string call_file(const std::string& directory, std::uint64_t number, std::string_view what) {
  return fmt::format("{}/{}/{:04}.{}.json", directory, kOverExecCalls, number, what);
}

}  // namespace

std::string GuestRunLayout::beneath(std::string_view name) const {
  return fmt::format("{}/{}", run_directory_ == "/" ? "" : run_directory_, name);
}

std::string GuestRunLayout::in_transport(std::string_view name) const {
  return fmt::format("{}/{}", transport_directory(), name);
}

std::string GuestRunLayout::request(std::uint64_t number) const {
  return call_file(transport_directory(), number, "request");
}

std::string GuestRunLayout::response(std::uint64_t number) const {
  return call_file(transport_directory(), number, "response");
}

GuestRunLayout guest_run_layout(std::string_view run_directory, std::string_view program) {
  if (!run_directory.starts_with('/')) refuse_directory(run_directory, "is not absolute");
  if (run_directory.find(':') != std::string_view::npos) {
    refuse_directory(run_directory, "contains ':', at which PYTHONPATH would be parted");
  }
  if (run_directory.find('\\') != std::string_view::npos) {
    refuse_directory(run_directory, "contains a backslash");
  }
  if (run_directory.find(kNul) != std::string_view::npos) {
    refuse_directory(run_directory, "contains a NUL");
  }
  if (program.empty() || program == "." || program == ".." ||
      program.find_first_of("/\\") != std::string_view::npos ||
      program.find(kNul) != std::string_view::npos) {
    refuse_program(program, "is no plain file name");
  }
  if (is_transport_name(program)) refuse_program(program, "is one of the transport's own");
  const std::string_view module = answers_to(program);
  if (std::ranges::find(kTakenModules, module) != kTakenModules.end()) {
    refuse_program(program,
                   fmt::format("would be imported as '{}', which others need", shown(module)));
  }
  return {normalise_guest_path(run_directory), std::string(program)};
}

}  // namespace casemate
