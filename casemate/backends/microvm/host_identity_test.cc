#include "casemate/backends/microvm/host_identity.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/scratch.h"

namespace casemate::microvm {
namespace {

HostFacts facts() {
  return {.processor =
              "processor\t: 0\nvendor_id\t: A\ncpu family\t: 6\nmodel\t\t: 143\n"
              "model name\t: One @ 2.10GHz\nstepping\t: 8\nmicrocode\t: 0x1\ncpu MHz\t\t: 2100.1\n"
              "flags\t\t: fpu avx2\nbogomips\t: 4200.0\n",
          .kernel_release = "6.1.0",
          .machine_id = "00ff\n"};
}

HostFacts with(std::string_view from, std::string_view to) {
  HostFacts changed = facts();
  changed.processor.replace(changed.processor.find(from), from.size(), to);
  return changed;
}

TEST(HostIdentity, IsAnotherOnAnotherProcessorKernelOrMachine) {
  const std::string here = host_identity(facts());
  for (const auto& [from, to] :
       {std::pair("vendor_id\t: A", "vendor_id\t: B"), std::pair("143", "144"),
        std::pair("2.10GHz", "3.10GHz"), std::pair("stepping\t: 8", "stepping\t: 9"),
        std::pair("0x1", "0x2"), std::pair("fpu avx2", "fpu")}) {
    EXPECT_NE(host_identity(with(from, to)), here) << from;
  }
  HostFacts other = facts();
  other.kernel_release = "6.2.0";
  EXPECT_NE(host_identity(other), here);
  other = facts();
  other.machine_id = "00fe\n";
  EXPECT_NE(host_identity(other), here);
}

TEST(HostIdentity, IsTheSameAtEveryLook) {
  EXPECT_EQ(host_identity(with("2100.1", "2300.7")), host_identity(facts())) << "it moves";
  EXPECT_EQ(host_identity(look_at_host_identity()), host_identity(look_at_host_identity()));
  EXPECT_NE(host_identity(look_at_host_identity()), host_identity({}));
}

TEST(ProgramIdentity, IsThatOfItsContentAndNotOfItsPlace) {
  const Scratch scratch;
  put(scratch / "one", "first build");
  put(scratch / "same", "first build");
  put(scratch / "other", "other build");
  const auto of = [&](const char* name) { return program_identity((scratch / name).string()); };
  EXPECT_EQ(of("one"), of("same"));
  EXPECT_NE(of("one"), of("other"));
  EXPECT_EQ(of("none"), "");
}

}  // namespace
}  // namespace casemate::microvm
