// `casemate backends`: what is known here, and whether it works.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <boost/json.hpp>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/base/json.h"
#include "casemate/base/one_line.h"
#include "casemate/core/backend.h"
#include "casemate/core/vocabulary.h"

namespace casemate::app {

namespace {

namespace json = boost::json;

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--json", "", Repeat::refused, "off", "one array of records on standard output", "--json"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

template <typename Value>
json::array names(const std::set<Value>& values) {
  json::array all;
  for (const Value value : values) all.emplace_back(to_string(value));
  return all;
}

json::object caps(const TransferLimits& limits) {
  return {{"max_bytes_per_file", limits.max_bytes_per_file},
          {"max_total_bytes", limits.max_total_bytes},
          {"max_files", limits.max_files}};
}

std::set<Limit> limits_not_held(const BackendDeclarations& declared) {
  std::set<Limit> missing;
  for (const Limit limit : {Limit::memory, Limit::pids, Limit::disk, Limit::cpu, Limit::files}) {
    if (!declared.enforceable_limits.contains(limit)) missing.insert(limit);
  }
  return missing;
}

json::object record(const BackendDeclarations& declared, const BackendProbe& probe) {
  return {
      {"name", declared.name},
      {"available", probe.available},
      {"reason",
       probe.available ? json::value(nullptr) : json::value(options_named_here(probe.reason))},
      {"isolation",
       declared.isolation ? json::value(to_string(*declared.isolation)) : json::value(nullptr)},
      {"egress_modes", names(declared.egress_modes)},
      {"capabilities", names(declared.capabilities)},
      {"limits",
       {{"files_in", caps(declared.limits.files_in)},
        {"files_out", caps(declared.limits.files_out)},
        {"enforceable", names(declared.enforceable_limits)},
        {"limits_not_held", names(limits_not_held(declared))}}},
      {"engine", probe.engine},
  };
}

// As --files-in-limit takes it.
std::string caps_text(const TransferLimits& limits) {
  return fmt::format("{},{},{}", size_text(limits.max_bytes_per_file),
                     size_text(limits.max_total_bytes), limits.max_files);
}

std::string text(const BackendDeclarations& declared, const BackendProbe& probe) {
  std::string lines =
      fmt::format("{}: {}\n", declared.name,
                  probe.available ? std::string("available")
                                  : "not available: " + one_line(options_named_here(probe.reason)));
  const auto line = [&lines](std::string_view name, std::string_view value) {
    lines += fmt::format("  {:<14}{}\n", name, value);
  };
  line("isolation", declared.isolation ? to_string(*declared.isolation) : "none stated");
  line("egress", join_names(declared.egress_modes));
  line("capabilities", join_names(declared.capabilities));
  line("files in", caps_text(declared.limits.files_in));
  line("files out", caps_text(declared.limits.files_out));
  line("limits held", join_names(declared.enforceable_limits));
  line("not held", join_names(limits_not_held(declared)));
  line("engine", probe.engine);
  return lines;
}

}  // namespace

constexpr VerbSpec kBackendsVerb = {
    .name = "backends",
    .synopsis = "backends [OPTIONS]",
    .summary = "list the backends known here: whether they work, and what they claim",
    .notes = "Exit status: 0, also when none is available.",
    .options = kOptions,
    .operands = ValueForm::text,
    .offered_operands = {},
};

int backends(const ParsedLine& line, const Config& config) {
  refuse_operands(line);
  json::array records;
  std::string lines;
  for (const auto& backend : make_backends(config, make_log(line))) {
    const BackendProbe probe = backend->probe();
    const BackendDeclarations declared = backend->declarations();
    records.push_back(record(declared, probe));
    lines += text(declared, probe);
  }
  write_all(1, line.has("--json") ? serialise_json(records) + '\n' : lines);
  return 0;
}

}  // namespace casemate::app
