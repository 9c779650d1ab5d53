// Programs run as they were asked, and their ends are told as they were.

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <string>

#include "casemate/conformance/probe.h"
#include "casemate/conformance/trial.h"

namespace casemate::conformance {
namespace {

using std::chrono::nanoseconds;

// What a provider may add to a program's bound before it answers: the contract's 3 s.
constexpr std::chrono::seconds kAnswerWithin{3};

ExecResult exited(std::string out, std::string err, int exit_code) {
  ExecResult result;
  result.exit_code = exit_code;
  result.stdout = std::move(out);
  result.stderr = std::move(err);
  return result;
}

void expect_end(std::string_view step, const ExecResult& seen, const ExecResult& expected) {
  const bool same = seen.outcome == expected.outcome && seen.exit_code == expected.exit_code &&
                    seen.stdout == expected.stdout && seen.stderr == expected.stderr;
  if (!same) throw Unmet(std::string(step), shown(expected), shown(seen));
}

void an_argv_sequence_runs(Trial& trial) {
  expect_end("sh -c 'printf ran; printf said >&2'",
             trial.run({"sh", "-c", "printf ran; printf said >&2"}), exited("ran", "said", 0));
}

void exit_code_fidelity(Trial& trial) {
  for (const int code : {7, 255}) {
    const std::string line = fmt::format("exit {}", code);
    expect_end("sh -c '" + line + "'", trial.run({"sh", "-c", line}), exited("", "", code));
  }
}

void argv_is_quoted(Trial& trial) {
  const std::string script = R"(printf '%s|' "$@")";
  expect_end("arguments that a shell would read as something else",
             trial.run({"sh", "-c", script, "sh", "a b$(echo injected)c", "it's", "", "*"}),
             exited("a b$(echo injected)c|it's||*|", "", 0));
}

void working_directory_is_honoured(Trial& trial) {
  trial.plant({{.path = trial.work() + "/here/mark.txt", .bytes = "found"}});
  for (const std::string& directory : {trial.work() + "/here", std::string("here")}) {
    ExecRequest request;
    request.command = Argv{{"cat", "mark.txt"}};
    request.directory = directory;
    expect_end("cat mark.txt in '" + directory + "'", trial.call().exec(request, trial.control()),
               exited("found", "", 0));
  }
}

void a_timeout_is_an_outcome(Trial& trial) {
  ExecRequest request;
  request.command = ShellLine{"printf begun; exec sleep 30"};
  request.timeout = trial.program_bound();
  const auto started = std::chrono::steady_clock::now();
  const ExecResult result = trial.call().exec(request, trial.control());
  const nanoseconds took = std::chrono::steady_clock::now() - started;
  ExecResult expected;
  expected.outcome = Outcome::timed_out;
  expected.stdout = "begun";
  expect_end("a program that sleeps past its bound", result, expected);
  const nanoseconds least = trial.program_bound() / 2;
  const nanoseconds most = trial.program_bound() + kAnswerWithin;
  if (took < least || took > most) {
    throw Unmet("the time until a bound of " + shown(trial.program_bound()) + " was told",
                "between " + shown(least) + " and " + shown(most), shown(took));
  }
}

}  // namespace

std::span<const Probe> exec_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {"an-argv-sequence-runs", "a program runs and its two streams come back apart",
       an_argv_sequence_runs},
      {"exit-code-fidelity", "the exit code is the program's own", exit_code_fidelity},
      {"argv-is-quoted", "arguments reach the program as they are, through no shell",
       argv_is_quoted},
      {"working-directory-is-honoured", "a program starts in the directory that was asked",
       working_directory_is_honoured},
      // Last: it may cost the sandbox.
      {"a-timeout-is-an-outcome",
       "a program past its bound is told as timed out, in time, with what it printed",
       a_timeout_is_an_outcome},
  });
  return kProbes;
}

}  // namespace casemate::conformance
