#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/run.h"

namespace casemate::app {

enum class OutputFormat : bool { streams, json };

// What to do about a refusal, in terms of options: the library's hints speak of specs and sinks.
// `hint` itself where it needs no translation.
std::string hint_in_options(std::string_view code, std::string_view hint);

// What to do about a file that could not be read, or put into the sandbox, with that errno; empty
// where that depends on what else is said.
std::string hint_of_file_error(int error_number);

// `text` with the library's options that stand in its hints named as they are set here: by a
// variable of the environment.
std::string options_named_here(std::string text);

// The same refusal with that hint, and with the message that only an operator may see.
class Reworded final : public SandboxError {
 public:
  Reworded(std::string code, const std::string& message, std::string hint,
           std::shared_ptr<const CodeactRun> lost_run = nullptr)
      : SandboxError(message, std::move(hint)),
        code_(std::move(code)),
        lost_run_(std::move(lost_run)) {}
  std::string_view code() const noexcept override { return code_; }
  // What is known of a run whose sandbox was lost under the program; null for any other refusal.
  const CodeactRun* lost_run() const noexcept { return lost_run_.get(); }

 private:
  std::string code_;
  std::shared_ptr<const CodeactRun> lost_run_;
};

// What is not one of the library's refusals has the code of `failure_code`: a step that this
// machine refused is named with it, everything else is "InternalError".
Reworded in_words_of_the_command_line(const std::exception& failure);

// `casemate: error: CODE: what; what to do` on standard error and, for JSON, the object of a
// refusal on standard output. Returns the exit status.
int report(const Reworded& refusal, OutputFormat format);

}  // namespace casemate::app
