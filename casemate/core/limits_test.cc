#include "casemate/core/limits.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

constexpr TransferLimits kSmall{.max_bytes_per_file = 10, .max_total_bytes = 15, .max_files = 2};

TEST(Limits, DefaultsAreTheReferences) {
  EXPECT_EQ(kDefaultTransferLimits.max_bytes_per_file, 8388608U);
  EXPECT_EQ(kDefaultTransferLimits.max_total_bytes, 33554432U);
  EXPECT_EQ(kDefaultTransferLimits.max_files, 64U);
  EXPECT_TRUE(kDefaultTransferLimits.within(kDefaultTransferLimits));
}

TEST(Limits, WithinIsEveryFieldAndEqualityPasses) {
  EXPECT_TRUE(kSmall.within(kSmall));
  EXPECT_FALSE((TransferLimits{11, 15, 2}).within(kSmall));
  EXPECT_FALSE((TransferLimits{10, 16, 2}).within(kSmall));
  EXPECT_FALSE((TransferLimits{10, 15, 3}).within(kSmall));
  EXPECT_TRUE((TransferLimits{0, 0, 0}).within(kSmall));
}

// IN-10, FO-07
TEST(TransferTally, AFileAtTheCapPassesAndOneByteMoreIsRefused) {
  TransferTally tally(kSmall, "files in");
  tally.add("a", 10);
  EXPECT_EQ(tally.bytes(), 10U);
  expect_refusal<SandboxTransferCapExceeded>([&] { tally.add("b\n", 11); },
                                             {"files in", "'b\\n'", "11 bytes", "10 bytes"});
  EXPECT_EQ(tally.files(), 1U);
  EXPECT_EQ(tally.bytes(), 10U);
}

TEST(TransferTally, ATotalAtTheCapPassesAndOneByteMoreIsRefused) {
  TransferTally exact(kSmall, "files out");
  exact.add("a", 10);
  exact.add("b", 5);
  EXPECT_EQ(exact.remaining_bytes(), 0U);

  TransferTally over(kSmall, "files out");
  over.add("a", 10);
  expect_refusal<SandboxTransferCapExceeded>([&] { over.add("b", 6); },
                                             {"files out", "6 bytes after 10", "15 bytes in all"});
  EXPECT_EQ(over.remaining_bytes(), 5U);
}

TEST(TransferTally, ACountAtTheCapPassesAndOneFileMoreIsRefused) {
  TransferTally tally(kSmall, "files in");
  tally.add("a", 0);
  tally.add("b", 0);
  expect_refusal<SandboxTransferCapExceeded>([&] { tally.add("c", 0); },
                                             {"'c'", "file number 3", "2 files"});
}

TEST(TransferTally, ChecksTheFilesSizeThenTheCountThenTheTotal) {
  TransferTally tally({.max_bytes_per_file = 10, .max_total_bytes = 10, .max_files = 1}, "x");
  tally.add("a", 10);
  expect_refusal<SandboxTransferCapExceeded>([&] { tally.add("b", 11); }, "bytes a file");
  expect_refusal<SandboxTransferCapExceeded>([&] { tally.add("b", 1); }, "file number 2");
}

TEST(TransferTally, HugeSizesDoNotWrapAround) {
  TransferTally tally({UINT64_MAX, UINT64_MAX, 10}, "x");
  tally.add("a", UINT64_MAX - 1);
  tally.add("b", 1);
  EXPECT_EQ(tally.remaining_bytes(), 0U);
  EXPECT_THROW(tally.add("c", UINT64_MAX), SandboxTransferCapExceeded);
}

TEST(TransferTally, ACopyCountsOnItsOwn) {
  TransferTally tally(kSmall, "x");
  tally.add("a", 1);
  TransferTally copy = tally;
  copy.add("b", 1);
  EXPECT_EQ(tally.files(), 1U);
  EXPECT_EQ(copy.files(), 2U);
}

RC_GTEST_PROP(TransferTally, NeverCountsMoreThanItsCaps, (std::vector<std::uint8_t> sizes)) {
  const TransferLimits limits{100, 400, 5};
  TransferTally tally(limits, "x");
  for (const std::uint8_t size : sizes) {
    try {
      tally.add("a", size);
    } catch (const SandboxTransferCapExceeded&) {
    }
    RC_ASSERT(tally.files() <= limits.max_files);
    RC_ASSERT(tally.bytes() <= limits.max_total_bytes);
  }
}

TEST(Resources, DefaultsAreSafeAndNotStated) {
  const Resources resources;
  EXPECT_NO_THROW(check_resources(resources));
  EXPECT_EQ(resources.memory_bytes, (ResourceLimit{536870912, false}));
  EXPECT_EQ(resources.pids.value, 128U);
  EXPECT_EQ(resources.cpu_millis.value, 1000U);
  EXPECT_FALSE(resources.cpu_seconds);
  EXPECT_EQ(resources.disk_bytes.value, 268435456U);
  EXPECT_EQ(resources.disk_inodes.value, 65536U);
  EXPECT_EQ(resources.open_files.value, 1024U);
  EXPECT_EQ(stated(5), (ResourceLimit{5, true}));
}

void expect_range(ResourceLimit Resources::* field, std::string_view name, std::uint64_t least,
                  std::uint64_t most) {
  Resources resources;
  for (const std::uint64_t good : {least, most}) {
    (resources.*field).value = good;
    EXPECT_NO_THROW(check_resources(resources)) << name << " " << good;
  }
  for (const std::uint64_t bad : {std::uint64_t{0}, least - 1, most + 1, UINT64_MAX}) {
    (resources.*field).value = bad;
    expect_refusal<InvalidArgument>(
        [&] { check_resources(resources); },
        {name, std::to_string(bad), std::to_string(least), std::to_string(most)});
  }
}

TEST(Resources, ABoundAtTheEndsOfItsRangePassesAndOneBeyondIsRefused) {
  expect_range(&Resources::memory_bytes, "memory", 16777216, kMaxBytes);
  expect_range(&Resources::pids, "pids", 4, kMaxPids);
  expect_range(&Resources::cpu_millis, "cpus", kMinCpuMillis, kMaxCpuMillis);
  expect_range(&Resources::disk_bytes, "disk", 1048576, kMaxBytes);
  expect_range(&Resources::disk_inodes, "disk inodes", kMinDiskInodes, kMaxDiskInodes);
  expect_range(&Resources::open_files, "open files", kMinOpenFiles, kMaxOpenFiles);
}

TEST(Resources, CpuSecondsOfZeroAreRefused) {
  Resources resources;
  resources.cpu_seconds = stated(0);
  expect_refusal<InvalidArgument>([&] { check_resources(resources); }, "cpu seconds of 0");
  resources.cpu_seconds = stated(1);
  EXPECT_NO_THROW(check_resources(resources));
}

}  // namespace
}  // namespace casemate
