// `casemate conformance`: hostile probes of a backend, one line each.

#include "casemate/conformance/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/stop_requests.h"
#include "apps/casemate/try_backend.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/core/errors.h"

namespace casemate::app {

namespace {

constexpr auto kSuites = [] {
  std::array<std::string_view, conformance::kSuites.size()> names{};
  std::ranges::transform(conformance::kSuites, names.begin(), &conformance::SuiteTraits::name);
  return names;
}();

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--backend", "NAME", Repeat::refused, "the first that is available", "try this backend",
     "--backend linux"},
    {"--image", "REF", Repeat::refused, "host",
     "try sandboxes from this image; below is what it must have inside", "--image dir:/srv/image"},
    {"--suite", "S", Repeat::allowed, "all of what the backend declares", "run this suite",
     "--suite files-out", ValueForm::text, kSuites},
    {"--json", "", Repeat::refused, "off", "one array of records on standard output", "--json"},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

std::shared_ptr<SandboxBackend> choose(const ParsedLine& line,
                                       const std::vector<std::shared_ptr<SandboxBackend>>& all) {
  if (line.has("--backend")) {
    std::vector<std::string> names;
    for (const auto& backend : all) names.push_back(backend->declarations().name);
    const std::string_view name = one_of("--backend", line.value_or("--backend", ""),
                                         std::vector<std::string_view>(names.begin(), names.end()));
    return all[static_cast<std::size_t>(std::ranges::find(names, name) - names.begin())];
  }
  // Finding out costs a sandbox, and so does the first probe.
  if (all.size() == 1) return all.front();
  std::string reasons;
  for (const auto& backend : all) {
    const BackendProbe probe = backend->probe();
    if (probe.available) return backend;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", backend->declarations().name,
                           options_named_here(probe.reason));
  }
  throw SandboxUnavailable("no backend is available here: " + reasons, "see `casemate backends`");
}

conformance::ConformanceOptions read_options(const ParsedLine& line) {
  conformance::ConformanceOptions options;
  options.refuses_images = line.has("--image");
  for (const std::string& name : line.values("--suite")) {
    one_of("--suite", name, kSuites);
    options.suites.insert(conformance::parse_suite(name));
  }
  return options;
}

}  // namespace

constexpr VerbSpec kConformanceVerb = {
    .name = "conformance",
    .synopsis = "conformance [OPTIONS]",
    .summary = "try by hostile probes whether a backend does what it declares",
    .notes =
        "One line a probe; a suite is skipped only where the backend does not declare what it is "
        "about.\n"
        "Every probe is harmless, also when it finds a hole.\n"
        "\n"
        "An image must have on its PATH what the probes run inside, of the GNU core utilities "
        "where "
        "they\n"
        "are of them: sh, cat, ln, mkdir for the suites of files; sh, cat, mkdir, sleep for exec; "
        "sh for\n"
        "egress, and curl, python3 or bash; python3 for host-tools; sh, cat, mktemp, python3, "
        "sleep, tr\n"
        "for usability; sh, cat, readlink, uname for rung; sh, cat, ln, mkdir, python3 for "
        "isolation;\n"
        "sh, cat, chmod, head, ln, ls, mkdir, od, readlink, rm, stat, touch, truncate for "
        "snapshot.\n"
        "One that has not is refused (SandboxImageInvalid); suites that do without it can be "
        "chosen.\n"
        "\n"
        "Exit status: 0 when all that ran passed, 1 when one failed, 125 when nothing could be "
        "tried.",
    .options = kOptions,
    .operands = ValueForm::text,
    .offered_operands = {},
};

int conformance_verb(const ParsedLine& line, const Config& config) {
  refuse_operands(line);
  std::optional<conformance::ConformanceOptions> options;
  std::shared_ptr<SandboxBackend> backend;
  // Before anything that starts a thread.
  const StopRequests stop;
  const auto backends =
      make_backends(config, make_log(line), ServerNameCheck::yes, line.value_or("--backend", ""));
  read_line(line, [&](const ParsedLine& given) {
    options = read_options(given);
    backend = choose(given, backends);
  });
  options->stop = stop.token();
  try {
    return try_backend(
        std::move(backend), std::move(*options),
        line.has("--json") ? OutputFormat::json : OutputFormat::streams,
        line.has("--image") ? std::optional(line.value_or("--image", "")) : std::nullopt);
  } catch (const SandboxCancelled&) {
    if (const auto status = stop.exit_status()) return *status;
    throw;
  }
}

}  // namespace casemate::app
