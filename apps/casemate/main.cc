// The command line: finds the verb, hands it its line, reports what it throws.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/help.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/option_parser.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/version.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/rlimits.h"

namespace casemate::app {

namespace {

using Words = std::span<const char* const>;

struct Verb {
  const VerbSpec* spec;
  int (*run)(const ParsedLine& line, const Config& config);
};

constexpr std::array kVerbs = {Verb{&kRunVerb, run},
                               Verb{&kExecVerb, exec},
                               Verb{&kListVerb, list},
                               Verb{&kRemoveVerb, remove},
                               Verb{&kImageVerb, image},
                               Verb{&kBackendsVerb, backends},
                               Verb{&kDoctorVerb, doctor},
                               Verb{&kConformanceVerb, conformance_verb},
                               Verb{&kMcpVerb, mcp_verb},
                               Verb{&kBenchVerb, bench_verb},
                               Verb{&kCompletionVerb, completion}};

const Verb& find_verb(std::string_view name) {
  const bool option = name.starts_with('-');
  // Also for who leaves the dashes out.
  std::vector<std::string_view> names = {"--help", "--version"};
  for (const Verb& verb : kVerbs) {
    if (verb.spec->name == name) return verb;
    if (!option) names.push_back(verb.spec->name);
  }
  throw InvalidArgument(
      fmt::format("unknown {} '{}'", option ? "option" : "verb", escape_for_display(name)),
      nearest_or(name, names, "`casemate --help` lists what there is"));
}

bool reads_config(const VerbSpec& verb) {
  return std::ranges::find(verb.options, kConfigOption.name, &OptionSpec::name) !=
         verb.options.end();
}

int run_verb(const Verb& verb, Words words, OutputFormat& format) {
  const auto options = verb.spec->options;
  if (asks_for("--json", words, options)) format = OutputFormat::json;
  ParsedLine line = parse_line(words, options, verb.spec->trailing);
  if (line.has("--help")) {
    write_all(1, verb_help(*verb.spec));
    return 0;
  }
  Config config;
  if (reads_config(*verb.spec)) {
    config = load_config(line, host_variable, all_verbs());
    line.set_defaults(config.defaults_of(verb.spec->name), options);
    if (line.has("--json")) format = OutputFormat::json;
  }
  return verb.run(line, config);
}

int run_line(Words words) {
  OutputFormat format = OutputFormat::streams;
  try {
    const std::string_view first = words.empty() ? "--help" : words[0];
    if (first == "--help" || first == "-h") {
      write_all(1, overview(all_verbs()));
      return 0;
    }
    if (first == "--version") {
      write_all(1, fmt::format("casemate {}\n", kVersion));
      return 0;
    }
    // As other command lines have it; not listed, because --help says the same.
    if (first == "help") {
      if (words.size() > 2) {
        throw InvalidArgument(fmt::format("unexpected '{}'", escape_for_display(words[2])),
                              "give `casemate VERB --help`");
      }
      write_all(1,
                words.size() == 1 ? overview(all_verbs()) : verb_help(*find_verb(words[1]).spec));
      return 0;
    }
    return run_verb(find_verb(first), words.subspan(1), format);
  } catch (const OutputClosed&) {
    return kExitOutputClosed;
  } catch (const std::exception& failure) {
    return report(in_words_of_the_command_line(failure), format);
  }
}

// For connections of programs, of which each takes several. What shells give is 1,024, for the sake
// of programs that use select(2); what we start inherits more, but sandboxes, which have limits of
// their own.
void raise_descriptor_limit() {
  constexpr std::uint64_t kEnough = 20 * 1024;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  sys::set_limit_as_near(RLIMIT_NOFILE, kEnough, limit.rlim_max);
}

}  // namespace

std::vector<const VerbSpec*> all_verbs() {
  std::vector<const VerbSpec*> specs;
  specs.reserve(kVerbs.size());
  for (const Verb& verb : kVerbs) specs.push_back(verb.spec);
  return specs;
}

}  // namespace casemate::app

int main(int argc, char** argv) {
  casemate::app::prepare_standard_streams();
  casemate::app::raise_descriptor_limit();
  // A caller may start a program with no words at all, not even its name.
  const int skipped = argc > 0 ? 1 : 0;
  return casemate::app::run_line({argv + skipped, argv + argc});
}
