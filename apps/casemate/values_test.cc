#include "apps/casemate/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InvalidArgument& refused) {
    return refused.message() + "; " + refused.hint();
  }
  return "nothing was refused";
}

TEST(Size, ReadsBytesAndSuffixesInEitherCase) {
  EXPECT_EQ(parse_size("--memory", "16777216", kMinMemoryBytes), 16 * kMiB);
  EXPECT_EQ(parse_size("--memory", "16M", kMinMemoryBytes), 16 * kMiB);
  EXPECT_EQ(parse_size("--memory", "2g", kMinMemoryBytes), 2 * kGiB);
  EXPECT_EQ(parse_size("--disk", "1024K", kMinDiskBytes), kMiB);
  EXPECT_EQ(parse_size("--disk", "1073741824G", kMinDiskBytes), kMaxBytes);
}

TEST(Size, RefusesWithTheRangeOneBeyondEitherEnd) {
  const auto memory = [](std::string_view text) {
    return refusal([&] { parse_size("--memory", text, kMinMemoryBytes); });
  };
  EXPECT_EQ(memory("16777215"),
            "--memory cannot be '16777215'; give a size in bytes or with K, M or G, from 16M to "
            "1073741824G");
  EXPECT_THAT(memory("1073741825G"), HasSubstr("from 16M to 1073741824G"));
  for (const char* text : {"", "0", "-1", "+16M", "16MB", "M", "1.5G", " 16M", "16M ", "0x10000000",
                           "18446744073709551616", "18014398509481985K", "\xff"}) {
    EXPECT_THAT(memory(text), HasSubstr("--memory cannot be")) << text;
  }
}

TEST(Count, RefusesOneBeyondEitherEnd) {
  EXPECT_EQ(parse_count("--pids", "4", kMinPids, kMaxPids), 4U);
  EXPECT_EQ(parse_count("--pids", "4194304", kMinPids, kMaxPids), kMaxPids);
  for (const char* text : {"3", "4194305", "", "-4", "4.0", "4k", "99999999999999999999"}) {
    EXPECT_THAT(refusal([&] { parse_count("--pids", text, kMinPids, kMaxPids); }),
                HasSubstr("give a whole number from 4 to 4194304"))
        << text;
  }
}

TEST(Seconds, MayBeFractional) {
  using std::chrono::nanoseconds;
  EXPECT_EQ(parse_seconds("--timeout", "2"), std::chrono::seconds(2));
  EXPECT_EQ(parse_seconds("--timeout", "0.25"), std::chrono::milliseconds(250));
  EXPECT_EQ(parse_seconds("--timeout", ".5"), std::chrono::milliseconds(500));
  EXPECT_EQ(parse_seconds("--timeout", "1."), std::chrono::seconds(1));
  EXPECT_EQ(parse_seconds("--timeout", "0.000000001"), nanoseconds(1));
}

TEST(Seconds, RefusesZeroMoreThanSevenDaysAndWhatIsNoNumber) {
  EXPECT_EQ(parse_seconds("--timeout", "604800"), std::chrono::days(7));
  for (const char* text : {"604800.000000001", "604801", "0", "0.0", "-1", "1e3", "inf", "nan",
                           "1s", "", ".", "1.2.3", "0.0000000001", "1,5", "99999999999999999999"}) {
    EXPECT_THAT(refusal([&] { parse_seconds("--timeout", text); }),
                HasSubstr("give seconds above 0 and at most 604800 (7 days)"))
        << text;
  }
}

TEST(Cpus, AreExactToTheThousandth) {
  EXPECT_EQ(parse_cpus("--cpus", "0.5"), 500U);
  EXPECT_EQ(parse_cpus("--cpus", "0.01"), kMinCpuMillis);
  EXPECT_EQ(parse_cpus("--cpus", "8192"), kMaxCpuMillis);
  for (const char* text : {"0.009", "8192.001", "0", "-1", "0.0105", "two"}) {
    EXPECT_THAT(refusal([&] { parse_cpus("--cpus", text); }), HasSubstr("from 0.01 to 8192"))
        << text;
  }
}

TEST(TransferLimitsValue, IsThreePartsNoneZero) {
  EXPECT_EQ(parse_transfer_limits("--files-in-limit", "1M,2M,3"),
            (TransferLimits{kMiB, 2 * kMiB, 3}));
  EXPECT_EQ(parse_transfer_limits("--files-in-limit", "1,1,1"), (TransferLimits{1, 1, 1}));
  for (const char* text :
       {"", "1M", "1M,2M", "1M,2M,3,4", "0,2M,3", "1M,0,3", "1M,2M,0", "1M,,3", "1M,2M,x"}) {
    EXPECT_THAT(refusal([&] { parse_transfer_limits("--files-in-limit", text); }),
                HasSubstr("--files-in-limit"))
        << text;
  }
  EXPECT_THAT(refusal([] { parse_transfer_limits("--files-in-limit", "1M,0,3"); }),
              HasSubstr("TOTAL"));
}

TEST(Assignment, SplitsAtTheFirstEquals) {
  EXPECT_EQ(parse_assignment("--label", "a=b=c"),
            (std::pair<std::string, std::string>("a", "b=c")));
  EXPECT_EQ(parse_assignment("--label", "a="), (std::pair<std::string, std::string>("a", "")));
  EXPECT_THAT(refusal([] { parse_assignment("--label", "=x"); }), HasSubstr("give NAME=VALUE"));
  EXPECT_THAT(refusal([] { parse_assignment("--label", "x"); }), HasSubstr("give NAME=VALUE"));
}

TEST(SizeText, UsesTheLargestWholeUnit) {
  EXPECT_EQ(size_text(0), "0");
  EXPECT_EQ(size_text(1023), "1023");
  EXPECT_EQ(size_text(1024), "1K");
  EXPECT_EQ(size_text(16 * kMiB), "16M");
  EXPECT_EQ(size_text(kGiB + kMiB), "1025M");
}

}  // namespace
}  // namespace casemate::app
