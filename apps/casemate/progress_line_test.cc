#include "apps/casemate/progress_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace casemate::app {
namespace {

using images::ProgressPhase;
using std::chrono::milliseconds;

constexpr std::uint64_t kMi = 1 << 20;

class ProgressLineTest : public testing::Test {
 protected:
  ProgressScreen screen(bool redraws) {
    return {.write = [this](std::string_view text) { shown_ += text; },
            .columns = [this] { return columns_; },
            .now = [this] { return now_; },
            .redraws = redraws};
  }
  // What was written since.
  std::string taken() { return std::exchange(shown_, {}); }

  std::string shown_;
  std::size_t columns_ = 80;
  std::chrono::steady_clock::time_point now_;
};

TEST_F(ProgressLineTest, IsDrawnOverAndEndsWithTheStep) {
  ProgressLine line(screen(true));
  line.show({"unpacking layer 1 of 2", ProgressPhase::begun, 0, 3 * kMi});
  EXPECT_EQ(taken(), "\rcasemate: unpacking layer 1 of 2, 0.0 of 3.0 MiB");
  now_ += milliseconds(100);
  line.show({"unpacking layer 1 of 2", ProgressPhase::going, kMi, 3 * kMi});
  EXPECT_EQ(taken(), "\rcasemate: unpacking layer 1 of 2, 1.0 of 3.0 MiB");
  line.show({"unpacking layer 1 of 2", ProgressPhase::ended, 3 * kMi, 3 * kMi});
  EXPECT_EQ(taken(), "\rcasemate: unpacking layer 1 of 2, 3.0 MiB       \n");
  line.show({"writing to disk", ProgressPhase::begun});
  EXPECT_EQ(taken(), "\rcasemate: writing to disk");
  line.show({"writing to disk", ProgressPhase::ended});
  EXPECT_EQ(taken(), "\rcasemate: writing to disk\n");
}

TEST_F(ProgressLineTest, IsDrawnTenTimesASecondAtMost) {
  ProgressLine line(screen(true));
  line.show({"fetching x", ProgressPhase::begun});
  taken();
  line.show({"fetching x", ProgressPhase::going, kMi});
  EXPECT_EQ(taken(), "\rcasemate: fetching x, 1.0 MiB");
  for (std::uint64_t mebibytes = 2; mebibytes <= 100; ++mebibytes) {
    now_ += milliseconds(1);
    line.show({"fetching x", ProgressPhase::going, mebibytes * kMi});
  }
  EXPECT_EQ(taken(), "");
  now_ += milliseconds(1);
  line.show({"fetching x", ProgressPhase::going, 100 * kMi});
  EXPECT_EQ(taken(), "\rcasemate: fetching x, 100.0 MiB");
}

TEST_F(ProgressLineTest, OfAStepThatHadNoEndIsLeft) {
  ProgressLine line(screen(true));
  line.show({"fetching x", ProgressPhase::begun});
  line.show({"fetching y", ProgressPhase::begun});
  EXPECT_EQ(taken(), "\rcasemate: fetching x\n\rcasemate: fetching y");
}

TEST_F(ProgressLineTest, StaysWithinTheScreen) {
  ProgressLine line(screen(true));
  columns_ = 40;
  const std::string step = "fetching " + std::string(500, 'x');
  line.show({step, ProgressPhase::begun});
  EXPECT_EQ(taken(), "\rcasemate: fetching " + std::string(20, 'x'));
  line.show({step, ProgressPhase::ended, ~std::uint64_t{0}, ~std::uint64_t{0}});
  EXPECT_EQ(taken(), "\rcasemate: fetchin, 17592186044416.0 MiB\n");
  columns_ = 41;
  // Never half of a character, and nothing at all where there is no room.
  line.show(
      {"a\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc"
       "\u00fc",
       ProgressPhase::begun});
  EXPECT_EQ(taken().back(), '\xbc');
  for (const std::size_t narrow : {11, 3, 1, 0}) {
    columns_ = narrow;
    line.show({"reading the archive", ProgressPhase::begun, 0, kMi});
    EXPECT_LE(taken().size(), 1 + std::max<std::size_t>(narrow, 1)) << narrow;
    line.show({"reading the archive", ProgressPhase::ended, kMi, kMi});
    taken();
  }
}

TEST_F(ProgressLineTest, ObeysNothing) {
  for (const bool redraws : {true, false}) {
    ProgressLine line(screen(redraws));
    line.show({"fetching \33]0;title\7\33[2J\nx\xff", ProgressPhase::begun});
    const std::string shown = taken();
    for (const char odd : {'\33', '\7', '\xff'}) EXPECT_EQ(shown.find(odd), shown.npos) << shown;
    EXPECT_LE(std::ranges::count(shown, '\n'), redraws ? 0 : 1);
  }
}

TEST_F(ProgressLineTest, IsALineAStepAndOneForDoubledBytesWhereNothingIsDrawnOver) {
  ProgressLine line(screen(false));
  line.show({"unpacking layer 1 of 2", ProgressPhase::begun, 0, 3 * kMi});
  line.show({"unpacking layer 1 of 2", ProgressPhase::going, kMi, 3 * kMi});
  line.show({"unpacking layer 1 of 2", ProgressPhase::ended, 3 * kMi, 3 * kMi});
  EXPECT_EQ(taken(), "casemate: unpacking layer 1 of 2, 3.0 MiB\n");
  line.show({"fetching x", ProgressPhase::begun});
  for (std::uint64_t mebibytes = 1; mebibytes <= 300; ++mebibytes) {
    line.show({"fetching x", ProgressPhase::going, mebibytes * kMi});
  }
  line.show({"fetching x", ProgressPhase::ended, 300 * kMi, 300 * kMi});
  EXPECT_EQ(
      taken(),
      "casemate: fetching x\ncasemate: fetching x, 64.0 MiB\ncasemate: fetching x, 128.0 MiB\n"
      "casemate: fetching x, 256.0 MiB\n");
}

}  // namespace
}  // namespace casemate::app
