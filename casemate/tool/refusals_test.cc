#include "casemate/tool/refusals.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

constexpr const char* kSecret = "/home/operator/engine.sock: tenant-7 \x1b[31m\xff";

template <typename Thrown>
std::unique_ptr<SandboxError> refusal() {
  return std::make_unique<Thrown>(kSecret, "restart /usr/lib/engine");
}

std::vector<std::unique_ptr<SandboxError>> every_refusal_that_is_not_for_models() {
  std::vector<std::unique_ptr<SandboxError>> refusals;
  refusals.push_back(refusal<InvalidArgument>());
  refusals.push_back(refusal<NoSandboxBackend>());
  refusals.push_back(refusal<SandboxBackendNotPermitted>());
  refusals.push_back(refusal<SandboxCapabilityNotSupported>());
  refusals.push_back(refusal<SandboxOsFamilyNotSupported>());
  refusals.push_back(refusal<SandboxCapabilityDenied>());
  refusals.push_back(refusal<SandboxIdentityDenied>());
  refusals.push_back(refusal<SandboxEgressNotEnforced>());
  refusals.push_back(refusal<SandboxTransferLimitsNotPermitted>());
  refusals.push_back(refusal<SandboxLimitNotEnforceable>());
  refusals.push_back(refusal<SandboxImageNotSupported>());
  refusals.push_back(refusal<SandboxImageInvalid>());
  refusals.push_back(refusal<SandboxUnavailable>());
  refusals.push_back(refusal<SandboxTimeout>());
  refusals.push_back(refusal<SandboxCancelled>());
  refusals.push_back(refusal<SandboxBusy>());
  refusals.push_back(refusal<NoSuchSandbox>());
  refusals.push_back(refusal<NoSuchSnapshot>());
  refusals.push_back(refusal<SandboxSnapshotMismatch>());
  refusals.push_back(refusal<SandboxPathRefused>());
  refusals.push_back(std::make_unique<SandboxFileError>(kSecret, 5, "restart"));
  refusals.push_back(refusal<Refusal<"SomethingNewer">>());
  return refusals;
}

TEST(Refusals, NeverShowAModelWhatTheProviderSaid) {
  for (const auto& each : every_refusal_that_is_not_for_models()) {
    const std::string text = sentence_for_model(*each);
    SCOPED_TRACE(each->code());
    EXPECT_TRUE(text.starts_with("Error: ")) << text;
    EXPECT_TRUE(text.ends_with(".")) << text;
    for (const char* part : {"/home", "tenant", "engine", "restart", "\x1b"}) {
      EXPECT_EQ(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Refusals, HaveASentenceOfTheirOwnWhereAModelCanDoSomething) {
  EXPECT_NE(sentence_for_model(*refusal<SandboxBusy>()).find("in use"), std::string::npos);
  EXPECT_NE(sentence_for_model(*refusal<SandboxTimeout>()).find("in time"), std::string::npos);
  EXPECT_NE(sentence_for_model(*refusal<SandboxCapabilityDenied>()).find("policy"),
            std::string::npos);
}

TEST(Refusals, OfAnUnknownKindAreAnUnavailableSandbox) {
  const std::string unavailable = sentence_for_model(SandboxUnavailable("x"));
  EXPECT_EQ(sentence_for_model(*refusal<Refusal<"SomethingNewer">>()), unavailable);
  EXPECT_EQ(sentence_for_model(std::runtime_error(kSecret)), unavailable);
}

TEST(Refusals, WrittenForAModelAreShown) {
  EXPECT_EQ(sentence_for_model(ModelFacingRefusal("there is no 'a'.", "hint")),
            "Error: there is no 'a'.");
  EXPECT_EQ(sentence_for_model(SandboxTransferCapExceeded("'a' is over", "hint")),
            "Error: 'a' is over");
  EXPECT_EQ(ModelFacingRefusal("x").code(), "InvalidArgument");
}

TEST(Refusals, ShownToAModelAreAlwaysValidUtf8) {
  EXPECT_TRUE(is_valid_utf8(sentence_for_model(SandboxOutputMissing("\xff is missing"))));
}

TEST(Refusals, HaveAStatusAndACode) {
  const SandboxUnavailable unavailable("x");
  EXPECT_EQ(failure_status(unavailable), "failed");
  EXPECT_EQ(failure_code(unavailable), "SandboxUnavailable");
  EXPECT_EQ(failure_status(SandboxTimeout("x")), "failed");
  EXPECT_EQ(failure_status(SandboxBusy("x")), "refused");
  EXPECT_EQ(failure_status(SandboxCancelled("x")), "cancelled");
  const std::runtime_error other("x");
  EXPECT_EQ(failure_status(other), "failed");
  EXPECT_EQ(failure_code(other), "InternalError");
  const std::system_error refused(EPERM, std::generic_category(), "eventfd");
  EXPECT_EQ(failure_status(refused), "failed");
  EXPECT_EQ(failure_code(refused), "SandboxUnavailable")
      << "this machine's refusal, no fault of ours";
}

TEST(Refusals, AreWholeButEscapedInTheLog) {
  EXPECT_EQ(line_for_log(SandboxUnavailable("no engine\n\x1b[31m", "start it")),
            "SandboxUnavailable: no engine\\n\\x1b[31m (start it)");
  EXPECT_EQ(line_for_log(std::runtime_error("a\nb")), "a\\nb");
}

}  // namespace
}  // namespace casemate
