#include "apps/casemate/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

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
  const Said texts =
      said([] { EXPECT_EQ(report(SandboxBusy("in use", "wait"), OutputFormat::streams), 125); });
  EXPECT_EQ(texts.err, "casemate: error: SandboxBusy: in use; wait\n");
  EXPECT_EQ(texts.out, "");
}

TEST(RefusalReport, IsOneLineWhateverTheMessageHolds) {
  const Said texts = said([] { say_error(InvalidArgument("a\nb\x1b[2J\xff")); });
  EXPECT_EQ(texts.err, "casemate: error: InvalidArgument: a b^[[2J\xef\xbf\xbd\n");
}

TEST(RefusalReport, IsAnObjectToo) {
  const Said texts = said([] { report(SandboxBusy("in use", "wait"), OutputFormat::json); });
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
      say_error(refused);
    }
  });
  EXPECT_THAT(texts.err, HasSubstr("../a\\nb"));
}

TEST(RefusalReport, NamesWhatIsNoneOfOurs) {
  const Said texts = said([] { say_error(std::runtime_error("broken")); });
  EXPECT_THAT(texts.err, StartsWith("casemate: error: InternalError: broken"));
}

}  // namespace
}  // namespace casemate::app
