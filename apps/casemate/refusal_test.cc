#include "apps/casemate/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <stdexcept>
#include <system_error>

#include "casemate/core/errors.h"
#include "casemate/transfer/artifact_name.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Said {
  std::string out;
  std::string err;
};

Said said(const std::function<void()>& call) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  call();
  Said texts;
  texts.out = ::testing::internal::GetCapturedStdout();
  texts.err = ::testing::internal::GetCapturedStderr();
  return texts;
}

TEST(RefusalReport, IsOneLineWithCodeMessageAndHint) {
  const Said texts = said([] {
    EXPECT_EQ(
        report(in_words_of_the_command_line(SandboxBusy("in use", "wait")), OutputFormat::streams),
        125);
  });
  EXPECT_EQ(texts.err, "casemate: error: SandboxBusy: in use; wait\n");
  EXPECT_EQ(texts.out, "");
}

TEST(RefusalReport, IsOneLineWhateverTheMessageHolds) {
  const Said texts = said([] {
    report(in_words_of_the_command_line(InvalidArgument("a\nb\x1b[2J\xff")), OutputFormat::streams);
  });
  EXPECT_EQ(texts.err, "casemate: error: InvalidArgument: a b\\x1b[2J\xef\xbf\xbd\n");
}

TEST(RefusalReport, IsAnObjectToo) {
  const Said texts = said([] {
    report(in_words_of_the_command_line(SandboxBusy("in use", "wait")), OutputFormat::json);
  });
  EXPECT_EQ(
      texts.out,
      R"({"status":"refused","error":{"code":"SandboxBusy","message":"in use","hint":"wait"}})"
      "\n");
  EXPECT_THAT(texts.err, StartsWith("casemate: error: SandboxBusy"));
}

TEST(RefusalReport, ShowsARefusedNameToTheOperatorEscaped) {
  const Said texts = said([] {
    try {
      validate_artifact_name("../a\nb");
    } catch (const SandboxError& refused) {
      report(in_words_of_the_command_line(refused), OutputFormat::streams);
    }
  });
  EXPECT_THAT(texts.err, HasSubstr("../a\\nb"));
}

TEST(RefusalReport, NamesWhatIsNoneOfOurs) {
  const Reworded refusal = in_words_of_the_command_line(std::runtime_error("broken"));
  EXPECT_EQ(refusal.code(), "InternalError");
  EXPECT_EQ(refusal.message(), "broken");
}

TEST(RefusalReport, NamesAStepThatThisMachineRefused) {
  const Reworded refusal =
      in_words_of_the_command_line(std::system_error(EMFILE, std::generic_category(), "eventfd"));
  EXPECT_EQ(refusal.code(), "SandboxUnavailable");
  EXPECT_THAT(refusal.message(), HasSubstr("eventfd: Too many open files"));
  EXPECT_THAT(refusal.hint(), HasSubstr("ulimit -n"));
}

TEST(RefusalReport, SaysOfAFileWhatItsErrnoAsksFor) {
  const auto hint = [](int error) {
    return in_words_of_the_command_line(SandboxFileError("cannot write 'x'", error)).hint();
  };
  for (const int error : {ENOSPC, EDQUOT}) EXPECT_THAT(hint(error), StartsWith("raise --disk"));
  for (const int error : {ENOENT, EISDIR, EACCES}) EXPECT_THAT(hint(error), HasSubstr("--file"));
  EXPECT_EQ(hint(EIO), "") << "no option mends that";
  EXPECT_EQ(in_words_of_the_command_line(SandboxFileError("x", ENOSPC, "free some space")).hint(),
            "free some space");
}

// EX-07
TEST(RefusalReport, KeepsWhatIsKnownOfALostRun) {
  CodeactRun run;
  run.result.stdout = "pre";
  const Carrying<SandboxUnavailable, CodeactRun> lost(SandboxUnavailable("gone"), run);
  const Reworded refusal = in_words_of_the_command_line(lost);
  ASSERT_NE(refusal.lost_run(), nullptr);
  const Said texts = said([&] { report(refusal, OutputFormat::json); });
  EXPECT_THAT(texts.out, StartsWith(R"({"status":"failed","stdout":"pre",)"));
  EXPECT_EQ(in_words_of_the_command_line(SandboxUnavailable("gone")).lost_run(), nullptr);
}

TEST(RefusalReport, SpeaksOfOptions) {
  EXPECT_THAT(hint_in_options("SandboxTransferCapExceeded", "raise the cap for files in"),
              StartsWith("raise --files-in-limit"));
  EXPECT_THAT(hint_in_options("SandboxTransferCapExceeded", "raise the cap for files out"),
              StartsWith("raise --files-out-limit"));
  EXPECT_EQ(hint_in_options("SandboxTransferCapExceeded", "share a directory that holds less"),
            "share a directory that holds less");
  EXPECT_THAT(hint_in_options("SandboxBackendNotPermitted", "lower min_isolation"),
              HasSubstr("--min-isolation"));
  EXPECT_EQ(hint_in_options("SandboxLandingExists", "let the sink overwrite"),
            "give --overwrite or another --out-dir");
  EXPECT_EQ(hint_in_options("SandboxLandingExists", "choose another name"), "choose another name");
  EXPECT_EQ(hint_in_options("SandboxFileError", ""), "");
  EXPECT_EQ(hint_in_options("SandboxLimitNotEnforceable", "give at most 25275990016"),
            "give at most 23G");
  EXPECT_EQ(hint_in_options("SandboxLimitNotEnforceable", "give at most 1074790401"),
            "give at most 1025M");
  EXPECT_THAT(hint_in_options("SandboxLimitNotEnforceable", "select a backend"),
              HasSubstr("casemate doctor"));
  EXPECT_THAT(hint_in_options("SandboxUnavailable", "it has ended; acquire a new one"),
              HasSubstr("`casemate run --keep`"));
  EXPECT_THAT(hint_in_options("SandboxIdentityDenied", "drop it from denied_identities"),
              StartsWith("leave out --deny-identity"));
  EXPECT_EQ(hint_in_options("SandboxFileError", "free some space"), "free some space");
  EXPECT_EQ(hint_in_options("InvalidArgument", "give --x or --y"), "give --x or --y");
  EXPECT_EQ(hint_in_options("SandboxUnavailable",
                            "choose another (the backend's option state_dir), "
                            "ImageStoreOptions::directory or ImageStoreOptions::directory"),
            "choose another (CASEMATE_STATE_DIR), CASEMATE_IMAGE_DIR or CASEMATE_IMAGE_DIR");
  // Says of each capability what needs it, and of none what does not.
  EXPECT_THAT(hint_in_options("SandboxCapabilityDenied", "drop host_tools"),
              HasSubstr("(files_out: --output and --manifest; host_tools: --host-tool and "));
}

}  // namespace
}  // namespace casemate::app
