#include "casemate/conformance/programs_inside.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "casemate/core/errors.h"
#include "casemate/core/exec.h"

namespace casemate::conformance {
namespace {

// Arranging files (Subject::plant) and looking at them.
constexpr auto kOfFiles = std::to_array<std::string_view>({"cat", "ln", "mkdir", "sh"});
constexpr auto kOfExec = std::to_array<std::string_view>({"cat", "mkdir", "sh", "sleep"});
constexpr auto kOfEgress = std::to_array<std::string_view>({"sh"});
constexpr auto kOfHostTools = std::to_array<std::string_view>({"python3"});
constexpr auto kOfSnapshots =
    std::to_array<std::string_view>({"cat", "chmod", "head", "ln", "ls", "mkdir", "od", "readlink",
                                     "rm", "sh", "stat", "touch", "truncate"});
constexpr auto kOfUsability =
    std::to_array<std::string_view>({"cat", "mktemp", "python3", "sh", "sleep", "tr"});
constexpr auto kOfRung = std::to_array<std::string_view>({"cat", "readlink", "sh", "uname"});
constexpr auto kOfIsolation =
    std::to_array<std::string_view>({"cat", "ln", "mkdir", "python3", "sh"});

// Behind the names, so that what was cut off is not taken for all.
constexpr std::string_view kEnd = "that is all";

}  // namespace

std::span<const std::string_view> programs_inside(Suite suite) {
  switch (suite) {
    case Suite::files_in:
    case Suite::files_out:
    case Suite::files_delete:
      return kOfFiles;
    case Suite::exec:
      return kOfExec;
    case Suite::egress:
      return kOfEgress;
    case Suite::host_tools:
      return kOfHostTools;
    case Suite::snapshot:
      return kOfSnapshots;
    case Suite::usability:
      return kOfUsability;
    case Suite::rung:
      return kOfRung;
    case Suite::isolation:
      return kOfIsolation;
  }
  return {};
}

std::vector<std::string> lacking_programs(Call& call, const std::set<Suite>& suites,
                                          const CallControl& control) {
  std::set<std::string> wanted;
  for (const Suite suite : suites) {
    for (const std::string_view program : programs_inside(suite)) wanted.emplace(program);
  }
  if (wanted.empty()) return {};
  std::string line;
  for (const std::string& program : wanted) {
    line += "command -v " + program + " >/dev/null 2>&1 || echo " + program + "; ";
  }
  ExecRequest request;
  request.command = ShellLine{line + "echo " + std::string(kEnd)};
  std::string said;
  try {
    said = call.exec(request, control).stdout;
  } catch (const SandboxFileError& error) {
    if (error.error_number() == ENOENT) return {"sh"};
    return {};
  } catch (const SandboxCancelled&) {
    throw;
  } catch (const SandboxError&) {
    return {};
  }
  std::vector<std::string> lacking;
  std::string_view rest = said;
  while (true) {
    const std::size_t end = rest.find('\n');
    if (end == rest.npos) return {};
    const std::string one(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (one == kEnd) return rest.empty() ? lacking : std::vector<std::string>{};
    if (!wanted.contains(one)) return {};
    lacking.push_back(one);
  }
}

}  // namespace casemate::conformance
