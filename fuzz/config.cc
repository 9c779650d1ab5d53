// casemate.toml: what is read fits the table of options, and values of it are judged like those of
// a command line.

#include "apps/casemate/config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "apps/casemate/run_options.h"
#include "apps/casemate/verbs.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::app;

constexpr auto kBackendsOptions = std::to_array<OptionSpec>({
    {"--json", "", Repeat::refused, "off", "", "--json"},
    kConfigOption,
});
constexpr VerbSpec kBackendsLike = {"backends", "", "", "", kBackendsOptions};
constexpr std::array<const VerbSpec*, 2> kVerbs = {&kRunVerb, &kBackendsLike};

void check_defaults(const VerbSpec& verb, std::span<const DefaultValue> defaults) {
  for (const DefaultValue& value : defaults) {
    const auto option = std::ranges::find(verb.options, value.option, &OptionSpec::name);
    require(option != verb.options.end(), "keys are options of the verb");
    require(!option->value.empty() || value.value.empty(), "a flag has no value");
    require(value.option != "--config", "a file names no other file");
    require(value.where.starts_with("c.toml:"), "a value knows its line");
  }
}

void check_options(const Config& config) {
  constexpr std::array<const char*, 1> kWords = {"program.py"};
  ParsedLine line = parse_line(kWords, kRunVerb.options);
  line.set_defaults(config.defaults_of("run"), kRunVerb.options);
  read_line(line, [](const ParsedLine& given) {
    const RunOptions options =
        read_run_options(given, [](const std::string&) { return std::nullopt; });
    check_resources(options.resources);
    require(
        options.timeout.count() > 0 && options.timeout <= std::chrono::seconds(kMaxTimeoutSeconds),
        "a timeout is within its range");
    require(options.program == "program.py", "no file names the program");
  });
}

}  // namespace

void fuzz_config(std::string_view bytes) {
  try {
    const Config config = parse_config(bytes, "c.toml", kVerbs);
    require(is_valid_utf8(bytes), "a file that is read is text");
    require(!config.linux_state_dir || config.linux_state_dir->starts_with('/'),
            "a state directory is absolute");
    for (const auto& [name, defaults] : config.defaults) {
      const auto verb = std::ranges::find(kVerbs, name, &VerbSpec::name);
      require(verb != kVerbs.end(), "tables are verbs");
      check_defaults(**verb, defaults);
    }
    check_options(config);
  } catch (const ConfigInvalid& refusal) {
    require(refusal.message().starts_with("c.toml:"), "a refusal names file and line");
    require(is_valid_utf8(refusal.message()) && is_valid_utf8(refusal.hint()), "a refusal is text");
    require(refusal.message().find('\n') == std::string::npos, "of one line");
  } catch (const InvalidArgument&) {
    // Of values that fit alone and not together (outputs without a directory).
  }
}

}  // namespace casemate::fuzz
