// `casemate doctor`: tries what is known here for real, and says how to mend what is missing.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/doctor_findings.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/base/json.h"
#include "casemate/guest/agent/landlock.h"
#include "casemate/local/group_detection.h"

namespace casemate::app {

namespace {

namespace json = boost::json;
using Status = Finding::Status;

constexpr int kSomethingMissing = 1;

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--json", "", Repeat::refused, "off", "one array of records on standard output", "--json"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

Finding control_groups() {
  const local::DetectedGroups groups = local::detect_groups();
  const local::ControlGroupLayout& layout = groups.layout;
  std::string found;
  for (const auto& [name, place] : {std::pair("memory", layout.memory),
                                    std::pair("pids", layout.pids), std::pair("cpu", layout.cpu)}) {
    if (!place) continue;
    found +=
        fmt::format("{}{} by version {}", found.empty() ? "" : ", ", name, place->unified ? 2 : 1);
  }
  if (groups.missing.empty()) return {"control groups", Status::ok, found, ""};
  std::string why;
  for (const auto& [limit, reason] : groups.missing) {
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", to_string(limit), reason);
  }
  const local::Remedy remedy = local::remedy_for_groups();
  if (!remedy.hint.empty()) why += "; " + remedy.hint;
  // Where systemd manages this user's processes it can give one of its groups away.
  const bool systemd = geteuid() != 0 && access("/run/systemd/system", F_OK) == 0;
  return {"control groups", Status::weaker, found.empty() ? why : found + "; " + why,
          remedy.command.empty() && systemd
              ? "systemd-run --user --scope --property=Delegate=yes $SHELL"
              : remedy.command};
}

Finding second_wall() {
  const long version = guest::landlock_version();
  if (version >= guest::kLeastLandlock) {
    return {"landlock", Status::ok, fmt::format("version {}", version), ""};
  }
  return {"landlock", Status::weaker,
          version < 1
              ? "programs have no second wall round their files: Landlock is not switched on "
                "in this kernel (add it to the parameter lsm= at boot) or is refused"
              : "programs have no second wall round their files: the kernel's Landlock is "
                "too old, Linux 5.19 has one that serves",
          ""};
}

// Without a command at its end that has a line of its own.
std::string_view found_before_fix(const Finding& finding) {
  std::string_view found = finding.found;
  if (finding.fix.empty() || !found.ends_with(finding.fix)) return found;
  found.remove_suffix(finding.fix.size());
  const std::size_t end = found.find_last_not_of(" :;");
  return end == found.npos ? std::string_view(finding.found) : found.substr(0, end + 1);
}

std::string text_of(const Finding& finding) {
  std::string text = fmt::format("{:<9}{}: {}\n", to_string(finding.status), finding.name,
                                 show_controls(found_before_fix(finding)));
  if (!finding.fix.empty()) text += fmt::format("{:<9}mend: {}\n", "", show_controls(finding.fix));
  return text;
}

json::object record_of(const Finding& finding) {
  return {{"name", finding.name},
          {"status", to_string(finding.status)},
          {"found", finding.found},
          {"fix", finding.fix.empty() ? json::value(nullptr) : json::value(finding.fix)}};
}

}  // namespace

constexpr VerbSpec kDoctorVerb = {
    .name = "doctor",
    .synopsis = "doctor [OPTIONS]",
    .summary = "try each backend for real; say what is missing and the command that mends it",
    .notes =
        "Each line is ok, weaker (it works, and holds less than elsewhere), missing, or absent (a "
        "backend whose\nengine is not here and need not be, because another one works). A command "
        "after "
        "\"mend:\" is exact;\nmost of them need root. A line without one says itself what would "
        "help.\n\n"
        "Exit status: 0 when nothing is missing, 1 when something is.",
    .options = kOptions,
    .operands = ValueForm::text,
    .offered_operands = {},
};

int doctor(const ParsedLine& line, const Config& config) {
  refuse_operands(line);
  std::vector<Finding> findings = examine_all(make_backends(config, make_log(line)));
  findings.push_back(examine_user_ids(findings));
  findings.push_back(control_groups());
  findings.push_back(second_wall());
  json::array records;
  std::string text;
  for (const Finding& finding : findings) {
    records.push_back(record_of(finding));
    text += text_of(finding);
  }
  write_all(1, line.has("--json") ? serialise_json(records) + '\n' : text);
  return std::ranges::any_of(
             findings, [](const Finding& finding) { return finding.status == Status::missing; })
             ? kSomethingMissing
             : 0;
}

}  // namespace casemate::app
