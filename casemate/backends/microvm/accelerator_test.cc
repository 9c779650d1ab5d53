#include "casemate/backends/microvm/accelerator.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace casemate::microvm {
namespace {

KvmFindings good() {
  return {.device_exists = true,
          .virtualisation = true,
          .open_error = 0,
          .api_version = 12,
          .hardware = true};
}

TEST(Kvm, IsUsedWhereTheDeviceOpensAndAProcessorIsBehindIt) {
  const KvmState state = judge(good(), "");
  EXPECT_TRUE(state.usable);
  EXPECT_EQ(state.reason, "");
}

TEST(Kvm, AMissingDeviceIsNamedWithWhatWouldHelp) {
  const KvmState state = judge({.virtualisation = true}, "somebody");
  EXPECT_FALSE(state.usable);
  EXPECT_EQ(state.reason, "there is no /dev/kvm");
  EXPECT_EQ(state.fix, "modprobe kvm_intel || modprobe kvm_amd");
  const KvmState without = judge({}, "somebody");
  EXPECT_EQ(without.fix, "") << "no command makes a processor";
  EXPECT_NE(without.hint.find("nested virtualisation"), std::string::npos) << without.hint;
}

TEST(Kvm, AForbiddenDeviceIsFixedByItsGroup) {
  KvmFindings findings = good();
  findings.open_error = EACCES;
  const KvmState state = judge(findings, "somebody");
  EXPECT_FALSE(state.usable);
  EXPECT_EQ(state.fix, "usermod -aG kvm somebody");
  EXPECT_EQ(judge(findings, "").fix, "") << "nobody to put into the group";
}

TEST(Kvm, ADeviceThatOnlyRootMayOpenIsNotTheHypervisorsToOpen) {
  KvmFindings findings = good();
  findings.closed_to_others = true;
  const KvmState state = judge(findings, "");
  EXPECT_FALSE(state.usable);
  EXPECT_EQ(state.fix, "chmod 0666 /dev/kvm");
}

TEST(Kvm, NobodyIsToldToOpenADeviceThatHasNoProcessorBehindIt) {
  KvmFindings findings = good();
  findings.hardware = false;
  findings.closed_to_others = true;
  EXPECT_EQ(judge(findings, "").fix, "");
  EXPECT_EQ(judge(findings, "").hint.find("chmod"), std::string::npos);
  findings.open_error = EACCES;
  EXPECT_EQ(judge(findings, "somebody").fix, "");
}

TEST(Kvm, ADeviceOfAnotherKindIsNoHypervisor) {
  KvmFindings findings = good();
  findings.hardware = false;
  EXPECT_FALSE(judge(findings, "").usable);
  EXPECT_EQ(judge(findings, "").fix, "") << "no command makes a processor";
  findings = good();
  findings.api_version = 11;
  EXPECT_FALSE(judge(findings, "").usable);
  findings = good();
  findings.open_error = EBUSY;
  EXPECT_FALSE(judge(findings, "").usable);
}

}  // namespace
}  // namespace casemate::microvm
