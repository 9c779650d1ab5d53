#include "apps/casemate/option_parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/vocabulary.h"

namespace casemate::app {

namespace {

constexpr OptionSpec kHelp = {"--help", "", Repeat::allowed, "", "", ""};

const OptionSpec* find_option(std::string_view name, std::span<const OptionSpec> options) {
  const auto found = std::ranges::find(options, name, &OptionSpec::name);
  return found == options.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_unknown(std::string_view name, std::span<const OptionSpec> options,
                                 std::string_view trailing) {
  std::vector<std::string_view> names = {"--help"};
  for (const OptionSpec& option : options) names.push_back(option.name);
  std::string hint = nearest_or(name, names, trailing.empty() ? "--help lists them" : "");
  if (!trailing.empty()) {
    hint += fmt::format("{}{} behind --", hint.empty() ? "" : "; ", trailing);
  }
  throw InvalidArgument(fmt::format("unknown option '{}'", escape_for_display(name)), hint);
}

}  // namespace

bool ParsedLine::has(std::string_view option) const {
  return typed(option) || default_values_.contains(option);
}

bool ParsedLine::typed(std::string_view option) const { return typed_.contains(option); }

const std::vector<std::string>& ParsedLine::values(std::string_view option) const {
  static const std::vector<std::string> none;
  const Values& origin = typed(option) ? typed_ : default_values_;
  const auto found = origin.find(option);
  return found == origin.end() ? none : found->second;
}

void ParsedLine::set_defaults(std::vector<DefaultValue> defaults,
                              std::span<const OptionSpec> options) {
  defaults_ = std::move(defaults);
  std::erase_if(defaults_, [&](const DefaultValue& one) {
    return typed(one.option) || std::ranges::any_of(options, [&](const OptionSpec& option) {
             return option.displaces == one.option && typed(option.name);
           });
  });
  default_values_.clear();
  for (const DefaultValue& one : defaults_) default_values_[one.option].push_back(one.value);
}

ParsedLine ParsedLine::without_default(std::size_t index) const {
  ParsedLine line = *this;
  std::vector<DefaultValue> rest = defaults_;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(index));
  line.set_defaults(std::move(rest), {});
  return line;
}

std::string ParsedLine::value_or(std::string_view option, std::string_view fallback) const {
  const auto& all = values(option);
  return all.empty() ? std::string(fallback) : all.back();
}

ParsedLine parse_line(std::span<const char* const> words, std::span<const OptionSpec> options,
                      std::string_view trailing) {
  ParsedLine line;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--") {
      line.trailing.assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
      break;
    }
    if (word.size() < 2 || word.front() != '-') {
      line.operands.emplace_back(word);
      continue;
    }
    std::string_view name = word;
    std::optional<std::string_view> inline_value;
    if (const auto equals = word.find('='); word.starts_with("--") && equals != word.npos) {
      name = word.substr(0, equals);
      inline_value = word.substr(equals + 1);
    }
    const bool help = word == "--help" || word == "-h";
    const OptionSpec* option = help ? &kHelp : find_option(name, options);
    if (option == nullptr) {
      refuse_unknown(name, options, line.operands.empty() ? std::string_view() : trailing);
    }
    if (option->value.empty()) {
      if (inline_value) throw InvalidArgument(fmt::format("{} takes no value", option->name));
      line.typed_[std::string(option->name)];
      continue;
    }
    if (!inline_value) {
      if (at + 1 == words.size()) {
        throw InvalidArgument(fmt::format("{} needs a value", option->name),
                              fmt::format("for example {}", option->example));
      }
      inline_value = words[++at];
    }
    auto& values = line.typed_[std::string(option->name)];
    if (option->repeat == Repeat::refused && !values.empty()) {
      throw InvalidArgument(fmt::format("{} is given twice", option->name),
                            "give it once: neither value is preferred over the other");
    }
    values.emplace_back(*inline_value);
  }
  return line;
}

bool asks_for(std::string_view flag, std::span<const char* const> words,
              std::span<const OptionSpec> options) {
  if (find_option(flag, options) == nullptr) return false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--") return false;
    if (word == flag) return true;
    const OptionSpec* option = find_option(word, options);
    if (option != nullptr && !option->value.empty()) ++at;
  }
  return false;
}

std::string nearest_or(std::string_view text, std::span<const std::string_view> candidates,
                       std::string_view otherwise) {
  const auto nearest = least_distant(text, candidates);
  if (!nearest) return std::string(otherwise);
  std::string said = fmt::format("the nearest is {}", nearest->text);
  if (!nearest->is_near && !otherwise.empty()) said += fmt::format("; {}", otherwise);
  return said;
}

std::string nearest_of(std::string_view text, std::span<const std::string_view> candidates) {
  const auto nearest = least_distant(text, candidates);
  return fmt::format(
      "{}{}", nearest ? fmt::format("the nearest is {}, of: ", nearest->text) : "give one of: ",
      fmt::join(candidates, ", "));
}

std::string_view one_of(std::string_view option, std::string_view text,
                        std::span<const std::string_view> candidates) {
  const auto found = std::ranges::find(candidates, text);
  if (found != candidates.end()) return *found;
  throw InvalidArgument(fmt::format("{} does not know '{}'", option, escape_for_display(text)),
                        nearest_of(text, candidates));
}

}  // namespace casemate::app
