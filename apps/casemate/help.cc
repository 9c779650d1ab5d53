#include "apps/casemate/help.h"

#include <fmt/format.h>

namespace casemate::app {

std::string verb_help(const VerbSpec& verb) {
  std::string text =
      fmt::format("Usage: casemate {}\n\n{}\n\nOptions:\n", verb.synopsis, verb.summary);
  for (const OptionSpec& option : verb.options) {
    const std::string spelling = option.value.empty()
                                     ? std::string(option.name)
                                     : fmt::format("{} {}", option.name, option.value);
    text +=
        fmt::format("  {}\n      {}{}\n      default: {}; example: {}\n", spelling, option.help,
                    option.repeat == Repeat::allowed && !option.value.empty() ? "; repeatable" : "",
                    option.fallback, option.example);
  }
  text += "  --help\n      show this and exit\n      default: off; example: --help\n";
  if (!verb.notes.empty()) text += fmt::format("\n{}\n", verb.notes);
  return text;
}

std::string overview(std::span<const VerbSpec* const> verbs) {
  std::string text =
      "Usage: casemate VERB [OPTIONS]\n\n"
      "Runs programs that a model wrote, inside a boundary that you chose.\n\nVerbs:\n";
  for (const VerbSpec* verb : verbs) text += fmt::format("  {:<12}{}\n", verb->name, verb->summary);
  text +=
      "\n"
      "  casemate VERB --help    every option with its default and an example\n"
      "  casemate --version      the version\n";
  return text;
}

}  // namespace casemate::app
