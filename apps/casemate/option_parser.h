#pragma once

// The command line taken apart, byte for byte.
//
// Our own, because names and program arguments must reach us unchanged and CLI11 2.1 changes them:
// it reads the next word as the value of `--env=`, splits an argument `[a,b]` behind `--` in two,
// and cannot tell `PROGRAM a` from `PROGRAM -- a`.

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace casemate::app {

enum class Repeat : bool { refused, allowed };

// What a value is, where more is wanted than its text: for its type in casemate.toml (numbers are
// numbers there, sizes numbers or strings, all else strings) and for completing it in a shell.
enum class ValueForm { text, number, size, path, named_path, directory };

// One option of a verb: what the parser and the help need to know of it. Tables of these are
// constants, so that nothing is built before main().
struct OptionSpec {
  // With its dashes: "--timeout", "-v".
  std::string_view name;
  // What stands for the value in help ("SECONDS"); empty makes it a flag.
  std::string_view value;
  // Whether a value may be given more than once. A flag always may.
  Repeat repeat;
  // The default as help shows it.
  std::string_view fallback;
  std::string_view help;
  // A use of it, as typed.
  std::string_view example;
  ValueForm form = ValueForm::text;
  // What a shell offers for the value; whoever reads the value decides what is valid.
  std::span<const std::string_view> offered = {};
  // The option whose default in casemate.toml gives way when this one is typed.
  std::string_view displaces = {};
};

// A value that no word of the line gave.
struct DefaultValue {
  std::string option;
  // Empty for a flag.
  std::string value;
  // FILE:LINE, for display.
  std::string where;

  friend bool operator==(const DefaultValue&, const DefaultValue&) = default;
};

// A command line that fits its table.
class ParsedLine {
 public:
  // By a word or by a default.
  bool has(std::string_view option) const;
  // By a word.
  bool typed(std::string_view option) const;
  // Every value given, in order: those of the line, or else the defaults.
  const std::vector<std::string>& values(std::string_view option) const;
  // The value of a single-valued option, or `fallback`.
  std::string value_or(std::string_view option, std::string_view fallback) const;

  // Defaults that stand where no word does: of an option that was typed none is taken, nor of one
  // that a typed option displaces.
  void set_defaults(std::vector<DefaultValue> defaults, std::span<const OptionSpec> options);
  // Those that were taken.
  const std::vector<DefaultValue>& defaults() const { return defaults_; }
  // This line without one of them.
  ParsedLine without_default(std::size_t index) const;

  // Words that are no options, before `--`.
  std::vector<std::string> operands;
  // Everything behind the first `--` that is no option's value.
  std::vector<std::string> trailing;

 private:
  friend ParsedLine parse_line(std::span<const char* const> words,
                               std::span<const OptionSpec> options, std::string_view trailing);
  using Values = std::map<std::string, std::vector<std::string>, std::less<>>;

  Values typed_;
  std::vector<DefaultValue> defaults_;
  Values default_values_;
};

// Takes `words` (behind the verb) apart. `--name value` and `--name=value` are the same; a value
// may be empty and may begin with a dash; `-` is an operand; `--help`
// (or `-h`) is a flag of every table.
// Throws `InvalidArgument`, one line, for an unknown option (naming the nearest one), a missing
// value, a value for a flag, and a second value where one is allowed. `trailing` is
// `VerbSpec::trailing`: an unknown option behind an operand may be of that.
ParsedLine parse_line(std::span<const char* const> words, std::span<const OptionSpec> options,
                      std::string_view trailing = {});

// Whether the flag is in the table and among `words` as an option, also when the line does not fit
// its table: how a refusal of the line itself is to be written.
bool asks_for(std::string_view flag, std::span<const char* const> words,
              std::span<const OptionSpec> options);

// "the nearest is X" of the candidates, and `otherwise` behind it when it is not near.
std::string nearest_or(std::string_view text, std::span<const std::string_view> candidates,
                       std::string_view otherwise);

// The nearest and all of them.
std::string nearest_of(std::string_view text, std::span<const std::string_view> candidates);

// `text` when it is one of `candidates`; otherwise throws `InvalidArgument` that names the option,
// the text, the nearest candidate and all of them.
std::string_view one_of(std::string_view option, std::string_view text,
                        std::span<const std::string_view> candidates);

}  // namespace casemate::app
