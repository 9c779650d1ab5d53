// `casemate completion`: what a shell sources to complete a command line.

#include "apps/casemate/completion_script.h"
#include "apps/casemate/console.h"
#include "apps/casemate/verbs.h"
#include "casemate/core/errors.h"

namespace casemate::app {

constexpr VerbSpec kCompletionVerb = {
    .name = "completion",
    .synopsis = "completion SHELL",
    .summary = "write what bash, zsh or fish needs to complete command lines",
    .notes =
        "SHELL is bash, zsh or fish. For one session:\n"
        "\n"
        "  bash   source <(casemate completion bash)\n"
        "  zsh    source <(casemate completion zsh)       (after compinit)\n"
        "  fish   casemate completion fish | source\n"
        "\n"
        "For good:\n"
        "\n"
        "  bash   casemate completion bash > ~/.local/share/bash-completion/completions/casemate\n"
        "  zsh    casemate completion zsh > DIR/_casemate (DIR in $fpath)\n"
        "  fish   casemate completion fish > ~/.config/fish/completions/casemate.fish",
    .options = {},
    .operands = ValueForm::text,
    .offered_operands = kShells,
};

int completion(const ParsedLine& line, const Config&) {
  std::vector<std::string> words = line.operands;
  words.insert(words.end(), line.trailing.begin(), line.trailing.end());
  if (words.size() != 1) {
    throw InvalidArgument(words.empty() ? "no SHELL is given" : "more than one SHELL is given",
                          "name one of bash, zsh, fish");
  }
  write_all(1, completion_script(words[0], all_verbs()));
  return 0;
}

}  // namespace casemate::app
