// `casemate exec`: a command in the sandbox that a run with --keep left.

#include "casemate/core/exec.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "apps/casemate/config.h"
#include "apps/casemate/console.h"
#include "apps/casemate/kept_sandboxes.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/stop_requests.h"
#include "apps/casemate/values.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/base/utf8.h"
#include "casemate/core/backend.h"
#include "casemate/core/errors.h"
#include "casemate/core/sandbox.h"
#include "casemate/kinds/codeact/notes.h"

namespace casemate::app {

namespace {

constexpr auto kOptions = std::to_array<OptionSpec>({
    {"--scope", "S", Repeat::refused, "cli", "first part of the sandbox's key", "--scope reports"},
    {"--thread", "T", Repeat::refused, "none; required", "second part of the key", "--thread 42"},
    {"--agent", "A", Repeat::refused, "default", "third part of the key", "--agent analyst"},
    {"--timeout", "SECONDS", Repeat::refused, "120",
     "the command's time, from its start; may be fractional; at most 604800", "--timeout 2.5",
     ValueForm::number},
    kConfigOption,
    {"-v", "", Repeat::refused, "quiet", "log to standard error", "-v"},
});

struct ExecOptions {
  SandboxKey key;
  ExecRequest request;
  // Its first word.
  std::string command;
};

ExecOptions read_exec_options(const ParsedLine& line) {
  ExecOptions options;
  if (!line.has("--thread")) {
    throw InvalidArgument("exec needs --thread",
                          "name the key of a kept sandbox; `casemate ls` lists them");
  }
  const auto part = [&line](std::string_view name, std::string_view fallback) {
    std::string value = line.value_or(name, fallback);
    if (!value.empty()) return value;
    throw InvalidArgument(fmt::format("{} is empty", name), "a part of the key is never empty");
  };
  options.key = {part("--scope", "cli"), part("--thread", ""), part("--agent", "default")};
  options.request.timeout = parse_seconds("--timeout", line.value_or("--timeout", "120"));
  if (!line.operands.empty()) {
    throw InvalidArgument(fmt::format("unexpected '{}'", escape_for_display(line.operands[0])),
                          "the command stands behind --");
  }
  if (line.trailing.empty()) {
    throw InvalidArgument("no command is given", "put it behind --, for example -- ls -l");
  }
  options.command = line.trailing.front();
  options.request.command = Argv{line.trailing};
  return options;
}

std::shared_ptr<Sandbox> find_sandbox(const Config& config, const Log& log, const SandboxKey& key,
                                      const CallControl& control) {
  NotLookedAt missed;
  for (const auto& backend : make_backends(config, log)) {
    if (auto found = kept_in(*backend, key, control, missed)) return found;
  }
  const std::string what = fmt::format(
      "no sandbox is kept for scope '{}', thread '{}', agent '{}'", escape_for_display(key.scope),
      escape_for_display(key.thread_id), escape_for_display(key.agent_dir));
  if (!missed.empty()) throw missed.refusal(what + " elsewhere");
  throw NoSuchSandbox(
      what,
      "`casemate run --keep` with this key leaves one; `casemate ls` lists those that there are");
}

std::unique_ptr<Process> start_command(Call& call, const ExecOptions& options,
                                       const CallControl& control) {
  try {
    return call.start(options.request, control);
  } catch (const SandboxFileError& refused) {
    throw SandboxFileError(
        fmt::format("'{}': {}", escape_for_display(options.command), refused.message()),
        refused.error_number(), refused.hint());
  }
}

}  // namespace

constexpr VerbSpec kExecVerb = {
    .name = "exec",
    .synopsis = "exec --thread T [OPTIONS] -- ARGV...",
    .summary = "run a command in the sandbox that a run with --keep left",
    .notes =
        "ARGV is a program of the sandbox's and its arguments, passed as they are; without a slash "
        "it\n"
        "is looked up on PATH. It starts in an empty directory of its own, meets the files that "
        "other\n"
        "calls left in its home directory and in /workspace, and has no input and no host tools. "
        "Its\n"
        "output passes through\n"
        "as that of `casemate run`. Afterwards the sandbox waits for its next user as long as the "
        "run\n"
        "that kept it said.\n"
        "\n"
        "Exit status: as `casemate run`'s; 125 (NoSuchSandbox) when no sandbox lives under the "
        "key; 125 also\n"
        "when those of a backend could not be looked at and none of the others has it.",
    .options = kOptions,
    .operands = ValueForm::path,
    .offered_operands = {},
    .trailing = "the command stands",
};

int exec(const ParsedLine& line, const Config& config) {
  ExecOptions options;
  read_line(line, [&](const ParsedLine& given) { options = read_exec_options(given); });
  const StopRequests stop;
  GuestStream out(STDOUT_FILENO, stop.token());
  GuestStream err(STDERR_FILENO, stop.token());
  options.request.capture_bytes = 0;
  options.request.on_output = [&](OutputStream stream, std::span<const char> bytes) {
    (stream == OutputStream::out ? out : err).write(bytes);
  };
  const CallControl control{std::nullopt, stop.token()};
  try {
    const auto sandbox = find_sandbox(config, make_log(line), options.key, control);
    const auto call = sandbox->open_call({}, control);
    const auto process = start_command(*call, options, control);
    const auto end = std::chrono::steady_clock::now() + *options.request.timeout;
    out.set_end_of_time(end);
    err.set_end_of_time(end);
    const ExecResult result = process->wait(control);
    out.finish();
    err.finish();
    // Those bounds are of the run that made the sandbox, which is another process's.
    for (const std::string& note :
         codeact::outcome_notes(result, std::nullopt, options.request.timeout)) {
      say("note: " + note);
    }
    const int status = result.outcome == Outcome::cancelled
                           ? stop.exit_status().value_or(shell_exit_status(result))
                           : shell_exit_status(result);
    if (out.dropped_bytes() + err.dropped_bytes() == 0 || stop.exit_status()) return status;
    say_error("OutputFailed", "nobody read the output; the rest of it was dropped",
              "read it, or send it to a file");
    return status == 0 ? kExitRefused : status;
  } catch (const SandboxCancelled& cancelled) {
    report(in_words_of_the_command_line(cancelled), OutputFormat::streams);
    return stop.exit_status().value_or(128 + SIGINT);
  }
}

}  // namespace casemate::app
