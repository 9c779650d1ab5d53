#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/casemate/option_parser.h"

namespace casemate::app {

// What help needs to know of a verb.
struct VerbSpec {
  std::string_view name;
  // Behind "casemate ".
  std::string_view synopsis;
  std::string_view summary;
  // A few paragraphs after the options; may be empty.
  std::string_view notes;
  std::span<const OptionSpec> options;
  // What words that are no options are, and those that are known, for completing them.
  ValueForm operands = ValueForm::text;
  std::span<const std::string_view> offered_operands = {};
  // The one of them whose own operand is known in part, and how: a word with a colon at its end has
  // a path behind it.
  std::string_view continued_operand = {};
  std::span<const std::string_view> offered_later = {};
  // What is put behind `--`, as "the command stands"; empty where nothing is.
  std::string_view trailing = {};
};

// Every option with its default and an example.
std::string verb_help(const VerbSpec& verb);

// The verbs.
std::string overview(std::span<const VerbSpec* const> verbs);

}  // namespace casemate::app
