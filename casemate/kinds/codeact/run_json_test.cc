#include "casemate/kinds/codeact/run_json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <stdexcept>
#include <string>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "casemate/kinds/codeact/scripted_test.h"
#include "tests/support/golden.h"

namespace casemate::codeact {
namespace {

CodeactRun full_run() {
  CodeactRun run;
  run.sandbox = {.id = "0123456789ab",
                 .backend = "linux",
                 .isolation = Isolation::container,
                 .reused = true,
                 .image = "host",
                 .egress = Egress::closed,
                 .work_dir = "/workspace",
                 .limits_not_held = {Limit::disk, Limit::memory}};
  run.result = exited(3, "out\n", "err\n");
  run.result.stderr_missing_bytes = 7;
  run.result.stderr_cut_at = 2;
  run.result.limit = Limit::pids;
  run.result.cpu = std::chrono::microseconds(1500);
  run.result.peak_memory = 4096;
  run.artifacts = {{.name = "a", .display = "a (1 bytes)", .handle = "/host/a", .bytes = 1}};
  run.missing_outputs = {"b"};
  run.collect_error = {.code = "SandboxLandingExists",
                       .message = "/host/b",
                       .hint = "--overwrite",
                       .sentence = "Error: S."};
  run.egress = {{.host = "pypi.org",
                 .port = 443,
                 .decision = EgressDecision::denied,
                 .reason = "leads to 10.0.0.1",
                 .bytes_out = 1,
                 .bytes_in = 2}};
  run.timings = {std::chrono::nanoseconds(1234567), std::chrono::nanoseconds(2000499),
                 std::chrono::milliseconds(3), std::chrono::nanoseconds(0),
                 std::chrono::milliseconds(10)};
  return run;
}

boost::json::object parsed(const std::string& text) { return parse_json(text).as_object(); }

TEST(CodeactRunJson, HasTheKeysOfTheCommandLine) {
  expect_golden("codeact/run.json", codeact_run_json(full_run(), ArtifactPaths::shown));
}

TEST(CodeactRunJson, HidesHostPathsAndOperatorTextFromModels) {
  const std::string text = codeact_run_json(full_run(), ArtifactPaths::hidden);
  EXPECT_EQ(text.find("/host"), std::string::npos);
  EXPECT_EQ(text.find("overwrite"), std::string::npos);
  EXPECT_EQ(text.find("10.0.0.1"), std::string::npos);
  EXPECT_EQ(parsed(text).at("error").at("message").as_string(), "S.");
  EXPECT_FALSE(parsed(text).at("artifacts").at(0).as_object().contains("path"));
}

TEST(CodeactRunJson, SaysNullWhereThereIsNothing) {
  CodeactRun run;
  run.result = ended_as(Outcome::signaled);
  const auto object = parsed(codeact_run_json(run, ArtifactPaths::shown));
  EXPECT_EQ(object.at("status"), "signaled");
  EXPECT_EQ(object.at("signal"), "SIGSEGV");
  for (const char* key : {"exit_code", "limit", "error"}) EXPECT_TRUE(object.at(key).is_null());
  EXPECT_FALSE(object.contains("stdout_base64"));
  EXPECT_FALSE(object.contains("stderr_base64"));
}

TEST(CodeactRunJson, KeepsBytesThatAreNoUtf8) {
  const struct {
    std::string bytes;
    std::string_view base64;
  } cases[] = {{"\xff", "/w=="},
               {"\xff\xfe", "//4="},
               {"a\xff\xfe", "Yf/+"},
               {std::string("\0\xff\0\0", 4), "AP8AAA=="}};
  for (const auto& each : cases) {
    CodeactRun run;
    run.result = exited(0, each.bytes);
    const std::string text = codeact_run_json(run, ArtifactPaths::shown);
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(parsed(text).at("stdout_base64").as_string(), each.base64);
    EXPECT_FALSE(parsed(text).contains("stderr_base64"));
  }
}

TEST(CodeactRunJson, CapsWhatReplacingMadeLonger) {
  // OUT-07: text, base64 and count are about the same bytes.
  CodeactRun run;
  run.result = exited(0, std::string(1000, '\xff'), std::string(1000, 'x'));
  run.capture_bytes = 1000;
  const auto object = parsed(codeact_run_json(run, ArtifactPaths::shown));
  EXPECT_EQ(object.at("stdout_truncated_bytes"), 668);
  EXPECT_EQ(object.at("stdout_base64").as_string().size(), 444U);
  EXPECT_EQ(object.at("stdout").as_string().size(),
            332 * 3 + std::string_view("\n[... 668 bytes missing ...]\n").size());
  EXPECT_EQ(object.at("stderr_truncated_bytes"), 0);
  EXPECT_EQ(object.at("stderr").as_string().size(), 1000U);
}

TEST(CodeactRunJson, MarksTheCut) {
  // OUT-03
  const auto object = parsed(codeact_run_json(full_run(), ArtifactPaths::shown));
  EXPECT_EQ(object.at("stderr_truncated_bytes"), 7);
  EXPECT_EQ(object.at("stderr"), "er\n[... 7 bytes missing ...]\nr\n");
}

TEST(CodeactFailureJson, TellsARefusalFromAFailure) {
  EXPECT_EQ(codeact_failure_json(SandboxCapabilityDenied("m", "h")),
            R"({"status":"refused","error":{"code":"SandboxCapabilityDenied","message":"m",)"
            R"("hint":"h"}})");
  const auto status = [](const std::exception& failure) {
    return std::string(parsed(codeact_failure_json(failure)).at("status").as_string());
  };
  EXPECT_EQ(status(SandboxUnavailable("m")), "failed");
  EXPECT_EQ(status(SandboxTimeout("m")), "failed");
  EXPECT_EQ(status(SandboxCancelled("m")), "cancelled");
  EXPECT_EQ(status(std::runtime_error("\xff")), "failed");
}

// EX-07
TEST(CodeactFailureJson, KeepsWhatHadComeOfALostRun) {
  CodeactRun run;
  run.sandbox.id = "0123456789ab";
  run.result = exited(0, "pre\n", "\xff");
  run.result.stdout_missing_bytes = 5;
  run.result.stdout_cut_at = 4;
  const Carrying<SandboxTimeout, CodeactRun> failure(SandboxTimeout("silent /run/x", "h"), run);
  auto object = parsed(codeact_failure_json(failure));
  EXPECT_EQ(object.at("status"), "failed");
  EXPECT_EQ(object.at("stdout"), "pre\n[... 5 bytes missing ...]\n");
  EXPECT_EQ(object.at("stdout_truncated_bytes"), 5);
  EXPECT_EQ(object.at("stderr"), "\uFFFD");
  EXPECT_EQ(object.at("stderr_base64"), "/w==");
  EXPECT_EQ(object.at("sandbox").at("id"), "0123456789ab");
  EXPECT_EQ(object.at("error").at("code"), "SandboxTimeout");
  EXPECT_EQ(object.at("error").at("message"), "silent /run/x");
  object = parsed(codeact_lost_run_json(failure, "For models."));
  EXPECT_EQ(object.at("stdout_truncated_bytes"), 5);
  EXPECT_EQ(
      object.at("error"),
      (boost::json::value{{"code", "SandboxTimeout"}, {"message", "For models."}, {"hint", ""}}));
}

}  // namespace
}  // namespace casemate::codeact
