#include "apps/casemate/completion_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/casemate/option_parser.h"

namespace casemate::app {

namespace {

using Verbs = std::span<const VerbSpec* const>;

constexpr std::string_view kShowHelp = "show help and exit";
constexpr std::string_view kShowVersion = "show the version and exit";

// As far as it fits beside an option in a list.
std::string_view in_short(std::string_view help) {
  return help.substr(0, help.find_first_of(";:"));
}

// For a single-quoted word of any of the shells.
std::string quoted(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
    } else {
      escaped += c;
    }
  }
  return "'" + escaped + "'";
}

// Whether a path stands behind one of them, as in dir:PATH.
bool begins_paths(std::span<const std::string_view> offered) {
  return std::ranges::any_of(offered, [](std::string_view word) { return word.ends_with(':'); });
}

// -- bash

std::string bash_answer(ValueForm form, std::span<const std::string_view> offered) {
  if (!offered.empty()) return fmt::format("_casemate_words '{}'", fmt::join(offered, " "));
  switch (form) {
    case ValueForm::path:
      return "_casemate_paths -f";
    case ValueForm::named_path:
      return "_casemate_named_paths";
    case ValueForm::directory:
      return "_casemate_paths -d";
    default:
      return "return";
  }
}

// What the functions share: `value` is the part of the word that is being completed, `front` what
// stands before it in the word, `head` the part of the word that readline will not replace.
constexpr std::string_view kBashFunctions =
    R"(# bash completion for casemate, written by `casemate completion bash`.

_casemate_offer() {
    COMPREPLY=("${COMPREPLY[@]/#/"$front"}")
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
}

# Behind one that ends in a colon stands a path.
_casemate_words() {
    local word
    for word in $1; do
        if [[ $word == *: && $value == "$word"* ]]; then
            front+=$word
            value=${value#"$word"}
            _casemate_paths -f
            return
        fi
    done
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$value")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace
    _casemate_offer
}

_casemate_paths() {
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen "$1" -- "$value")
    _casemate_offer
}

# The first operand: what follows it is the user's own, but for that of $2, for which $3 are known.
_casemate_first() {
    local word
    for word in "${words[@]:2:${#words[@]}-3}"; do
        if [[ " $1 " == *" $word "* ]]; then
            [[ $word == "$2" ]] && _casemate_words "$3"
            return
        fi
    done
    _casemate_words "$1"
}

# NAME=PATH or PATH.
_casemate_named_paths() {
    if [[ $value == *=* ]]; then
        front+=${value%%=*}=
        value=${value#*=}
    fi
    _casemate_paths -f
}

_casemate() {
    local raw='' joined='' front='' head option value i
    local -a words=()
    COMPREPLY=()
    # readline parts words at = and :, which are letters like others here.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        raw=${COMP_WORDS[i]}
        if [[ -z $raw && ${COMP_LINE:COMP_POINT-1:1} == [[:space:]] ]]; then
            joined=''
        fi
        if [[ $i -gt 0 && -n $raw && -z ${raw//[=:]/} ]]; then
            words[-1]+=$raw
            joined=1
        elif [[ $joined ]]; then
            words[-1]+=$raw
            joined=''
        else
            words+=("$raw")
        fi
    done
    value=${words[-1]}
    [[ -z ${raw//[=:]/} ]] && raw=''
    head=${value:0:${#value}-${#raw}}
)";

std::string bash_script(Verbs verbs) {
  std::string names;
  std::string arms;
  for (const VerbSpec* verb : verbs) {
    names += fmt::format("{} ", verb->name);
    std::string options;
    for (const OptionSpec& option : verb->options) {
      options += fmt::format("{} ", option.name);
      if (option.value.empty()) continue;
      arms += fmt::format("        {}:{}) {}; return ;;\n", verb->name, option.name,
                          bash_answer(option.form, option.offered));
    }
    arms += fmt::format("        {}:*)\n", verb->name);
    arms += "            front=''; value=${words[-1]}\n";
    arms += fmt::format("            if [[ $value == -* ]]; then _casemate_words '{}--help'\n",
                        options);
    arms += fmt::format(
        "            else {}; fi ;;\n",
        verb->offered_operands.empty()
            ? bash_answer(verb->operands, {})
            : fmt::format("_casemate_first '{}' '{}' '{}'", fmt::join(verb->offered_operands, " "),
                          verb->continued_operand, fmt::join(verb->offered_later, " ")));
  }
  return fmt::format(R"({}    if ((${{#words[@]}} == 2)); then
        _casemate_words '{}--help --version'
        return
    fi
    for raw in "${{words[@]:2:${{#words[@]}}-3}}"; do
        [[ $raw == -- ]] && {{ _casemate_paths -f; return; }}
    done
    option=${{words[-2]}}
    if [[ $value == --*=* ]]; then
        option=${{value%%=*}}
        front=$option=
        value=${{value#*=}}
    fi
    case ${{words[1]}}:$option in
{}    esac
}}

complete -F _casemate casemate
)",
                     kBashFunctions, names, arms);
}

// -- zsh

// In the description or the message of a specification for _arguments.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string zsh_action(ValueForm form, std::span<const std::string_view> offered) {
  if (begins_paths(offered)) {
    // Behind a space, it is called with these words alone.
    return fmt::format(" _casemate_words {}", zsh_text(fmt::format("{}", fmt::join(offered, " "))));
  }
  if (!offered.empty()) return fmt::format("({})", fmt::join(offered, " "));
  switch (form) {
    case ValueForm::path:
      return "_files";
    case ValueForm::named_path:
      return "_casemate_named_paths";
    case ValueForm::directory:
      return "_files -/";
    default:
      // Something, so that nothing else is offered.
      return " ";
  }
}

std::string zsh_script(Verbs verbs) {
  std::string descriptions;
  std::string arms;
  for (const VerbSpec* verb : verbs) {
    descriptions +=
        fmt::format("            {}\n", quoted(fmt::format("{}:{}", verb->name, verb->summary)));
    arms += fmt::format("        {})\n            _arguments -S", verb->name);
    for (const OptionSpec& option : verb->options) {
      const bool takes_value = !option.value.empty();
      const std::string star = option.repeat == Repeat::allowed && takes_value ? "*" : "";
      std::string spec = fmt::format("{}{}{}[{}]", star, option.name, takes_value ? "=" : "",
                                     zsh_text(in_short(option.help)));
      if (takes_value) {
        spec +=
            fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option.form, option.offered));
      }
      arms += fmt::format(" \\\n                {}", quoted(spec));
    }
    arms += fmt::format(" \\\n                {}", quoted(fmt::format("--help[{}]", kShowHelp)));
    arms +=
        fmt::format(" \\\n                {}",
                    quoted(fmt::format("{}:operand:{}", verb->offered_operands.empty() ? "*" : "1",
                                       zsh_action(verb->operands, verb->offered_operands))));
    if (!verb->continued_operand.empty()) {
      arms += fmt::format(
          " \\\n                {}",
          quoted(fmt::format("2:operand: _casemate_later {} {}", verb->continued_operand,
                             zsh_text(fmt::format("{}", fmt::join(verb->offered_later, " "))))));
    }
    arms += " ;;\n";
  }
  return fmt::format(R"(#compdef casemate
# zsh completion for casemate, written by `casemate completion zsh`.

# NAME=PATH or PATH.
_casemate_named_paths() {{
    compset -P '*='
    _files
}}

# Behind one that ends in a colon stands a path.
_casemate_words() {{
    local word
    for word in "$@"; do
        if [[ $word == *: && $PREFIX == "$word"* ]]; then
            compset -P "$word"
            _files
            return
        fi
    done
    compadd -S '' -- ${{(M)@:#*:}}
    compadd -- ${{@:#*:}}
}}

# What follows the first operand $1; nothing follows another.
_casemate_later() {{
    [[ $line[1] == $1 ]] && _casemate_words "${{@[2,-1]}}"
}}

_casemate() {{
    if ((CURRENT == 2)); then
        local -a verbs=(
{}        )
        _describe verb verbs
        _arguments '--help[{}]' '--version[{}]'
        return
    fi
    local verb=$words[2]
    shift words
    ((CURRENT--))
    case $verb in
{}    esac
}}

# Sourced, or found by compinit in $fpath.
if [[ $funcstack[1] == _casemate ]]; then
    _casemate "$@"
else
    compdef _casemate casemate
fi
)",
                     descriptions, kShowHelp, kShowVersion, arms);
}

// -- fish

// What `complete -a` takes.
std::string fish_words(std::span<const std::string_view> offered) {
  const std::string words = fmt::format("{}", fmt::join(offered, " "));
  return quoted(begins_paths(offered) ? fmt::format("(__casemate_words {})", words) : words);
}

std::string fish_value(ValueForm form, std::span<const std::string_view> offered) {
  if (!offered.empty()) return " -x -a " + fish_words(offered);
  switch (form) {
    case ValueForm::path:
    case ValueForm::named_path:
      return " -r -F";
    case ValueForm::directory:
      return " -x -a '(__fish_complete_directories)'";
    default:
      return " -x";
  }
}

constexpr std::string_view kFishFunctions =
    R"(# fish completion for casemate, written by `casemate completion fish`.

# Behind one that ends in a colon stands a path.
function __casemate_words
    set -l value (commandline -ct | string replace -r -- '^--[^=]*=' '')
    for word in $argv
        if string match -q -- '*:' $word; and string match -q -- "$word*" $value
            set -l path (string replace -- $word '' $value)
            for found in $path*
                test -d $found; and echo $word$found/; or echo $word$found
            end
            return
        end
    end
    printf '%s\n' $argv
end

complete -c casemate -f
)";

std::string fish_script(Verbs verbs) {
  std::string text(kFishFunctions);
  const auto top = [&text](std::string_view words, std::string_view help) {
    text += fmt::format("complete -c casemate -n __fish_use_subcommand {} -d {}\n", words,
                        quoted(help));
  };
  for (const VerbSpec* verb : verbs) {
    top(fmt::format("-a {}", verb->name), verb->summary);
  }
  top("-l help", kShowHelp);
  top("-l version", kShowVersion);
  for (const VerbSpec* verb : verbs) {
    const std::string seen =
        fmt::format("complete -c casemate -n '__fish_seen_subcommand_from {}'", verb->name);
    for (const OptionSpec& option : verb->options) {
      const bool is_long = option.name.starts_with("--");
      text += fmt::format("{} {} {}{} -d {}\n", seen, is_long ? "-l" : "-s",
                          option.name.substr(is_long ? 2 : 1),
                          option.value.empty() ? "" : fish_value(option.form, option.offered),
                          quoted(in_short(option.help)));
    }
    text += fmt::format("{} -l help -d {}\n", seen, quoted(kShowHelp));
    if (!verb->offered_operands.empty()) {
      const std::string words = fmt::format("{}", fmt::join(verb->offered_operands, " "));
      text += fmt::format(
          "complete -c casemate -n '__fish_seen_subcommand_from {}; and not "
          "__fish_seen_subcommand_from {}' -a '{}'\n",
          verb->name, words, words);
      if (!verb->continued_operand.empty()) {
        text += fmt::format("{}; and __fish_seen_subcommand_from {}' -a {}\n",
                            seen.substr(0, seen.size() - 1), verb->continued_operand,
                            fish_words(verb->offered_later));
      }
    } else if (verb->operands == ValueForm::path) {
      text += fmt::format("{} -F\n", seen);
    }
  }
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell, Verbs verbs) {
  const std::string_view known = one_of("SHELL", shell, kShells);
  if (known == "bash") return bash_script(verbs);
  if (known == "zsh") return zsh_script(verbs);
  return fish_script(verbs);
}

}  // namespace casemate::app
