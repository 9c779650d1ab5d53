#include "casemate/backends/microvm/machine_arguments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace casemate::microvm {
namespace {

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string after(const std::vector<std::string>& words, const std::string& word) {
  const auto found = std::find(words.begin(), words.end(), word);
  return found == words.end() || found + 1 == words.end() ? "" : *(found + 1);
}

guest::MachinePlan plan_of(const MachineShape& shape) {
  guest::MachinePlan plan;
  fill_arguments(plan, shape);
  return plan;
}

TEST(MachineArguments, AMachineHasNothingThatWasNotNamed) {
  for (const MachineType type : {MachineType::microvm, MachineType::q35}) {
    const auto words = plan_of({.type = type, .memory_mib = 896}).arguments;
    for (const char* word : {"-nodefaults", "-no-user-config", "-no-reboot"}) {
      EXPECT_TRUE(has(words, word)) << word;
    }
    EXPECT_EQ(after(words, "-display"), "none");
    EXPECT_EQ(after(words, "-sandbox"),
              "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    EXPECT_EQ(after(words, "-m"), "896M");
    for (const std::string& word : words) {
      EXPECT_EQ(word.find("net"), word.npos) << word;
      if (word.starts_with("if=none")) {
        EXPECT_NE(word.find("readonly=on"), word.npos) << word;
      }
    }
  }
}

TEST(MachineArguments, AnEmulatedMachineNeverSeesKvm) {
  const auto emulated = plan_of({.accelerator = Accelerator::tcg, .memory_mib = 64});
  EXPECT_EQ(after(emulated.arguments, "-accel"), "tcg,tb-size=128");
  EXPECT_FALSE(emulated.uses_kvm);
  const auto real = plan_of({.accelerator = Accelerator::kvm, .memory_mib = 64});
  EXPECT_EQ(after(real.arguments, "-accel"), "kvm");
  EXPECT_TRUE(real.uses_kvm);
}

TEST(MachineArguments, OnlyAFreshMachineHasAKernelAndAMeasuredClock) {
  const auto plan = plan_of({.accelerator = Accelerator::tcg, .memory_mib = 64});
  EXPECT_NE(after(plan.fresh_arguments, "-append").find("tsc_early_khz=@"), std::string::npos);
  EXPECT_FALSE(has(plan.restored_arguments, "-kernel"));
  EXPECT_EQ(after(plan.restored_arguments, "-incoming"), "defer");
  for (const std::string& word : plan.arguments) EXPECT_EQ(word.find("tsc"), word.npos);
}

TEST(MachineMemory, GrowsInStepsAndAlwaysHasRoomForTheKernel) {
  constexpr std::uint64_t kMiB = 1 << 20;
  for (const std::uint64_t programs : {17 * kMiB, 768 * kMiB, 8192 * kMiB}) {
    const std::uint64_t memory = machine_memory_mib(programs);
    EXPECT_GE(memory * kMiB, programs + 128 * kMiB);
    EXPECT_EQ(memory % 64, 0U);
  }
}

TEST(MachineMemory, IsOfOneKindForAllThatNeedsNoMoreThanTheDefaultBounds) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::uint64_t usual = machine_memory_mib((512 + 256) * kMiB);
  EXPECT_EQ(machine_memory_mib(17 * kMiB), usual);
  EXPECT_GT(machine_memory_mib((1024 + 256) * kMiB), usual);
}

TEST(MachinePlan, ComesBackAsItWasWritten) {
  guest::MachinePlan plan = plan_of({.memory_mib = 64});
  plan.program = "/usr/bin/qemu";
  plan.files = {{"kernel", "/a b/k"}, {"image", "/i"}};
  plan.program_bytes = 5;
  plan.cpu_millis = 6;
  plan.saved = "/s";
  EXPECT_EQ(guest::decode_machine_plan(guest::encode(plan)), plan);
}

TEST(MachinePlan, RefusesWhatWouldBeReadAsSomethingElse) {
  guest::MachinePlan plan;
  plan.program = "/usr/bin/qemu\nkvm 1";
  EXPECT_THROW(guest::encode(plan), std::invalid_argument);
  for (const char* text : {"x", "unknown 1\n", "kvm 1", "kvm x\n", "programs -1\n", "file a\n",
                           "file  /x\n", "file a/b /x\n", "\n"}) {
    EXPECT_THROW(guest::decode_machine_plan(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace casemate::microvm
