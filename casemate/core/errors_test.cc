#include "casemate/core/errors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <type_traits>

namespace casemate {
namespace {

TEST(Errors, ARefusalCarriesCodeMessageAndHint) {
  const SandboxBusy refusal("in use", "wait");
  const SandboxError& base = refusal;
  EXPECT_EQ(base.code(), "SandboxBusy");
  EXPECT_EQ(base.message(), "in use");
  EXPECT_EQ(base.hint(), "wait");
  EXPECT_STREQ(base.what(), "in use");
  EXPECT_EQ(SandboxBusy("in use").hint(), "");
}

TEST(Errors, EachClassIsCaughtByItsOwnNameOnly) {
  EXPECT_THROW(throw SandboxTimeout("x"), SandboxTimeout);
  EXPECT_FALSE((std::is_base_of_v<SandboxTimeout, SandboxCancelled>));
  EXPECT_FALSE((std::is_same_v<SandboxTimeout, SandboxCancelled>));
}

template <typename Refused>
std::string_view code_of(const Refused& refusal) {
  return refusal.code();
}

TEST(Errors, CodesAreTheContractsNames) {
  EXPECT_EQ(code_of(InvalidArgument("")), "InvalidArgument");
  EXPECT_EQ(code_of(ConfigInvalid("")), "ConfigInvalid");
  EXPECT_EQ(code_of(NoSandboxBackend("")), "NoSandboxBackend");
  EXPECT_EQ(code_of(SandboxBackendNotPermitted("")), "SandboxBackendNotPermitted");
  EXPECT_EQ(code_of(SandboxCapabilityNotSupported("")), "SandboxCapabilityNotSupported");
  EXPECT_EQ(code_of(SandboxOsFamilyNotSupported("")), "SandboxOsFamilyNotSupported");
  EXPECT_EQ(code_of(SandboxCapabilityDenied("")), "SandboxCapabilityDenied");
  EXPECT_EQ(code_of(SandboxIdentityDenied("")), "SandboxIdentityDenied");
  EXPECT_EQ(code_of(SandboxEgressNotEnforced("")), "SandboxEgressNotEnforced");
  EXPECT_EQ(code_of(SandboxTransferLimitsNotPermitted("")), "SandboxTransferLimitsNotPermitted");
  EXPECT_EQ(code_of(SandboxLimitNotEnforceable("")), "SandboxLimitNotEnforceable");
  EXPECT_EQ(code_of(SandboxImageNotSupported("")), "SandboxImageNotSupported");
  EXPECT_EQ(code_of(SandboxImageInvalid("")), "SandboxImageInvalid");
  EXPECT_EQ(code_of(HostToolNotDeclared("")), "HostToolNotDeclared");
  EXPECT_EQ(code_of(HostToolIdentityNotAllowed("")), "HostToolIdentityNotAllowed");
  EXPECT_EQ(code_of(SandboxUnavailable("")), "SandboxUnavailable");
  EXPECT_EQ(code_of(SandboxTimeout("")), "SandboxTimeout");
  EXPECT_EQ(code_of(SandboxCancelled("")), "SandboxCancelled");
  EXPECT_EQ(code_of(SandboxBusy("")), "SandboxBusy");
  EXPECT_EQ(code_of(NoSuchSandbox("")), "NoSuchSandbox");
  EXPECT_EQ(code_of(NoSuchSnapshot("")), "NoSuchSnapshot");
  EXPECT_EQ(code_of(SandboxSnapshotMismatch("")), "SandboxSnapshotMismatch");
  EXPECT_EQ(code_of(SandboxPathRefused("")), "SandboxPathRefused");
  EXPECT_EQ(code_of(SandboxFileError("", ENOENT)), "SandboxFileError");
}

template <typename Refused>
void expect_output_error(std::string_view code) {
  const Refused refusal("message", "hint");
  EXPECT_EQ(refusal.code(), code);
  EXPECT_TRUE((std::is_base_of_v<SandboxOutputError, Refused>));
  EXPECT_EQ(refusal.hint(), "hint");
}

TEST(Errors, WhatCollectingThrowsIsOneFamily) {
  expect_output_error<SandboxOutputMissing>("SandboxOutputMissing");
  expect_output_error<SandboxOutputNotConfined>("SandboxOutputNotConfined");
  expect_output_error<SandboxOutputNotRegular>("SandboxOutputNotRegular");
  expect_output_error<SandboxOutputSizeUnknown>("SandboxOutputSizeUnknown");
  expect_output_error<SandboxOutputUnreachable>("SandboxOutputUnreachable");
  expect_output_error<SandboxOutputSinkRequired>("SandboxOutputSinkRequired");
  expect_output_error<SandboxTransferCapExceeded>("SandboxTransferCapExceeded");
  expect_output_error<SandboxLandingNotConfined>("SandboxLandingNotConfined");
  expect_output_error<SandboxLandingExists>("SandboxLandingExists");
  expect_output_error<SandboxArtifactNameInvalid>("SandboxArtifactNameInvalid");
  expect_output_error<SandboxArtifactNameCollision>("SandboxArtifactNameCollision");
  EXPECT_FALSE((std::is_base_of_v<SandboxOutputError, SandboxFileError>));
}

TEST(Errors, AFileErrorCarriesTheGuestsErrno) {
  const SandboxFileError refusal("a link", ELOOP, "read the file itself");
  EXPECT_EQ(refusal.error_number(), ELOOP);
  EXPECT_EQ(refusal.hint(), "read the file itself");
}

TEST(SandboxError, IsUtf8WhateverItQuotes) {
  const InvalidArgument refusal("kind 'a\xff'", "not \x80");
  EXPECT_EQ(refusal.message(), "kind 'a\uFFFD'");
  EXPECT_EQ(refusal.hint(), "not \uFFFD");
}

}  // namespace
}  // namespace casemate
