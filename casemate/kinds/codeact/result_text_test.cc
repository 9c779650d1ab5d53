#include "casemate/kinds/codeact/result_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/capture.h"
#include "casemate/kinds/codeact/notes.h"
#include "casemate/kinds/codeact/scripted_test.h"
#include "tests/support/golden.h"

namespace casemate::codeact {
namespace {

using namespace std::chrono_literals;

CodeactRun run_of(ExecResult result, std::optional<std::chrono::nanoseconds> timeout = 2s) {
  CodeactRun run;
  run.result = std::move(result);
  append_outcome_notes(run, codeact_sandbox_spec(), timeout);
  return run;
}

LandedArtifact landed(const std::string& name) {
  return {.name = name, .display = name + " (12 bytes)", .handle = "/host/" + name, .bytes = 12};
}

ExecResult with_limit(ExecResult result, Limit limit) {
  result.limit = limit;
  return result;
}

ExecResult not_known(ExecResult result) {
  result.stopped_known = false;
  return result;
}

TEST(ResultText, IsWhatAReviewerRead) {
  std::string all;
  const auto add = [&all](std::string_view when, const CodeactRun& run) {
    all += "## " + std::string(when) + "\n" + result_text(run) + "\n\n";
  };
  add("printed", run_of(exited(0, "1\n2\n\n")));
  add("both streams and an exit code", run_of(exited(3, "out\n", "Traceback\n")));
  // OUT-13
  add("nothing printed", run_of(exited()));
  add("nothing printed, exit code", run_of(exited(1)));
  // EX-07
  add("timed out after printing", run_of(ended_as(Outcome::timed_out, "step 1 ok\n")));
  add("timed out, silent, end not known", run_of(not_known(ended_as(Outcome::timed_out)), 1500ms));
  // OUT-11
  add("signaled", run_of(ended_as(Outcome::signaled)));
  // RL-04
  add("out of memory", run_of(ended_as(Outcome::out_of_memory, "1\n")));
  add("cancelled", run_of(ended_as(Outcome::cancelled)));
  add("a child out of memory, the program lived on",
      run_of(with_limit(exited(0, "went on\n"), Limit::memory)));
  add("limit: pids", run_of(with_limit(exited(1), Limit::pids)));
  add("limit: disk", run_of(with_limit(exited(1), Limit::disk)));
  add("limit: cpu", run_of(with_limit(ended_as(Outcome::signaled), Limit::cpu)));
  add("limit: files", run_of(with_limit(exited(1), Limit::files)));

  CodeactRun run = run_of(exited(0, "done\n"));
  run.artifacts = {landed("a.png"), landed("b/c.txt")};
  add("saved", run);
  run.missing_outputs = {"d.txt", "e\u200b.txt"};
  add("saved and missing", run);
  run = run_of(exited());
  run.artifacts = {landed("a.png")};
  add("saved, nothing printed", run);
  run = run_of(exited(1, "", "ValueError\n"));
  run.artifacts = {landed("a.png")};
  add("saved, failed", run);
  run = run_of(exited(0, "done\n"));
  run.notes.emplace_back("outputs.json was not written, so nothing was saved.");
  add("no list", run);
  run = run_of(exited(0, "done\n"));
  run.collect_error = {.code = "SandboxOutputNotRegular",
                       .message = "operator text /host/x",
                       .hint = "operator hint",
                       .sentence = "Error: output \"a\" is not a regular file. Nothing was saved."};
  add("collecting failed", run);
  expect_golden("codeact/result_texts.txt", all);
}

CapturedStream captured(std::string_view bytes, std::uint64_t cap) {
  StreamCapture capture(cap);
  capture.append(bytes);
  return capture.take();
}

ExecResult with_stdout(const CapturedStream& stream) {
  ExecResult result = exited(0, stream.bytes);
  result.stdout_missing_bytes = stream.missing_bytes;
  result.stdout_cut_at = stream.cut_at;
  return result;
}

TEST(ResultText, SaysHowManyBytesAreMissingAtTheCut) {
  // OUT-03
  std::string lines = "HEAD\n";
  for (int line = 0; line < 100000; ++line) lines += std::to_string(line) + "\n";
  lines += "TAIL\n";
  const std::string text = result_text(run_of(with_stdout(captured(lines, 1000))));
  EXPECT_TRUE(text.starts_with("stdout:\nHEAD\n0\n")) << text.substr(0, 40);
  EXPECT_TRUE(text.ends_with("TAIL"));
  EXPECT_NE(text.find("\n[... " + std::to_string(lines.size() - 1000) + " bytes missing ...]\n"),
            std::string::npos);
}

TEST(ResultText, CutsOnCharacterBoundaries) {
  // OUT-07
  std::string smileys;
  for (int count = 0; count < 100; ++count) smileys += "\U0001F600";
  for (std::uint64_t cap = 39; cap <= 43; ++cap) {
    const CapturedStream stream = captured(smileys, cap);
    EXPECT_LE(stream.bytes.size(), cap);
    EXPECT_EQ(stream.bytes.size() + stream.missing_bytes, smileys.size());
    const std::string text = result_text(run_of(with_stdout(stream)));
    EXPECT_EQ(text.find("\uFFFD"), std::string::npos) << text;
  }
}

TEST(ResultText, ReplacesWhatIsNotUtf8) {
  const std::string text = result_text(run_of(exited(0,
                                                     "a\xff\xe2\x82"
                                                     "b")));
  EXPECT_EQ(text, "stdout:\na\uFFFD\uFFFDb");
  EXPECT_TRUE(is_valid_utf8(text));
}

TEST(ResultText, CapsWhatReplacingMadeLonger) {
  // OUT-07
  for (const std::size_t size : {1000UL, 1001UL, 5000UL}) {
    CodeactRun run = run_of(with_stdout(captured(std::string(size, '\xff'), 1000)));
    run.capture_bytes = 1000;
    const std::string text = result_text(run);
    std::size_t shown = 0;
    for (std::size_t at = 0; (at = text.find("\uFFFD", at)) != std::string::npos; at += 3) ++shown;
    EXPECT_EQ(shown, 332U);
    EXPECT_NE(text.find(fmt::format("[... {} bytes missing ...]", size - shown)),
              std::string::npos);
  }
}

// EX-07
TEST(LostRunText, SaysWhatHadBeenPrinted) {
  CodeactRun run;
  EXPECT_EQ(
      lost_run_text(run, "Error: gone."),
      "Error: gone.\n\nnote: this happened while the program ran. Nothing that it printed had "
      "come by then. What else it did is not known.");
  run.result = exited(0, "pre\n", "w\xff");
  run.notes = {"first."};
  EXPECT_EQ(lost_run_text(run, "Error: gone."),
            "Error: gone.\n\nstdout:\npre\n\nstderr:\nw\uFFFD\n\nnote: first.\nnote: this happened "
            "while the program ran. Above is what it had printed by then. What else it did is not "
            "known.");
}

TEST(ResultText, CapsAlikeWhateverTheOutcome) {
  // OUT-09
  const CapturedStream stream = captured(std::string(101, 'x'), 100);
  for (const Outcome outcome : {Outcome::exited, Outcome::timed_out, Outcome::signaled}) {
    ExecResult result = with_stdout(stream);
    result.outcome = outcome;
    EXPECT_NE(result_text(run_of(result)).find("[... 1 bytes missing ...]"), std::string::npos);
  }
}

TEST(ResultText, NamesNoHostPath) {
  CodeactRun run = run_of(exited());
  run.artifacts = {landed("a.png")};
  EXPECT_EQ(result_text(run).find("/host"), std::string::npos);
}

}  // namespace
}  // namespace casemate::codeact
