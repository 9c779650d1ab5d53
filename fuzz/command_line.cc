// A command line taken apart, its words parted by NULs: nothing of a word changes.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "apps/casemate/option_parser.h"
#include "apps/casemate/run_options.h"
#include "apps/casemate/verbs.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

using namespace casemate::app;

std::vector<std::string> words_of(std::string_view bytes) {
  std::vector<std::string> words;
  for (Input input(bytes); !input.empty() && words.size() < 64;) {
    words.emplace_back(input.until('\0'));
  }
  return words;
}

bool is_tail(const std::string& value, const std::string& word) {
  return word == value || word.ends_with("=" + value);
}

}  // namespace

void fuzz_command_line(std::string_view bytes) {
  const std::vector<std::string> words = words_of(bytes);
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  try {
    const ParsedLine line = parse_line(pointers, kRunVerb.options);
    for (const std::string& operand : line.operands) {
      require(std::ranges::find(words, operand) != words.end(), "an operand is a word");
    }
    require(line.trailing.size() <= words.size() &&
                std::equal(line.trailing.begin(), line.trailing.end(),
                           words.end() - static_cast<std::ptrdiff_t>(line.trailing.size())),
            "what stands behind -- is left as it is");
    for (const OptionSpec& option : kRunVerb.options) {
      const auto& values = line.values(option.name);
      require(option.repeat == Repeat::allowed || option.value.empty() || values.size() <= 1,
              "an option that is single has one value");
      for (const std::string& value : values) {
        require(option.value.empty() ||
                    std::ranges::any_of(
                        words, [&](const std::string& word) { return is_tail(value, word); }),
                "a value is a word or the end of one");
      }
    }
    const RunOptions options =
        read_run_options(line, [](const std::string&) { return std::nullopt; });
    check_resources(options.resources);
    std::vector<std::string> program = line.operands;
    program.insert(program.end(), line.trailing.begin(), line.trailing.end());
    require(options.program == program.at(0) &&
                std::equal(program.begin() + 1, program.end(), options.arguments.begin(),
                           options.arguments.end()),
            "a program gets its words as they are");
    require(!options.key.scope.empty() && !options.key.thread_id.empty() &&
                !options.key.agent_dir.empty(),
            "a key has its parts");
  } catch (const InvalidArgument& refusal) {
    require(is_valid_utf8(refusal.message()) && is_valid_utf8(refusal.hint()), "a refusal is text");
    require(refusal.message().find('\n') == std::string::npos, "of one line");
  }
}

}  // namespace casemate::fuzz
