#include "bench/table.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace casemate::bench {
namespace {

Row row(std::string name, std::vector<double> samples, std::vector<Bar> bars = {}) {
  Row row;
  row.subject.work = "work";
  row.subject.name = std::move(name);
  row.subject.bars = std::move(bars);
  row.samples = std::move(samples);
  return row;
}

TEST(Table, AMedianAtItsBarHoldsAndOneAboveDoesNot) {
  std::vector<Row> rows{row("limit", {2, 1, 3}), row("at", {4, 4, 4}, {{.factor = 1.5, .plus = 1}}),
                        row("above", {4.01, 4.01, 4.01}, {{.factor = 1.5, .plus = 1}})};
  judge(rows);
  EXPECT_EQ(rows[0].median, 2);
  EXPECT_EQ(rows[1].holds, true);
  EXPECT_EQ(rows[1].ratio_to_limit, 2);
  EXPECT_EQ(rows[2].holds, false);
  EXPECT_EQ(rows[0].holds, std::nullopt) << "a limit has no bar";
}

TEST(Table, WithoutThePeerOfABarOnlyABrokenOneIsAVerdict) {
  const std::vector<Bar> bars{{.factor = 2}, {.of = "bwrap", .factor = 1}};
  std::vector<Row> rows{row("limit", {2}), row("ours", {3}, bars), row("bwrap", {})};
  judge(rows);
  EXPECT_EQ(rows[1].holds, std::nullopt);
  rows[1].samples = {5};
  judge(rows);
  EXPECT_EQ(rows[1].holds, false);
}

TEST(Table, ASubjectThatThrowsIsSkippedWithItsReasonAndTheOthersGoOn) {
  int runs = 0;
  std::vector<Subject> subjects(2);
  subjects[0].once = []() -> double { throw std::runtime_error("no engine"); };
  subjects[1].once = [&] { return static_cast<double>(++runs); };
  const auto rows = measure(std::move(subjects), 3, {}, [](std::string_view) {});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].subject.skipped, "no engine");
  EXPECT_TRUE(rows[0].samples.empty());
  EXPECT_EQ(rows[1].samples, (std::vector<double>{2, 3, 4})) << "the first warms the caches";
}

TEST(Table, AStopEndsItWithoutRows) {
  std::stop_source stop;
  std::vector<Subject> subjects(1);
  subjects[0].once = [&] {
    stop.request_stop();
    return 1.0;
  };
  EXPECT_TRUE(measure(std::move(subjects), 3, stop.get_token(), [](std::string_view) {}).empty());
}

TEST(Table, QuantilesAreValuesThatOccurred) {
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.99), 4);
  EXPECT_EQ(quantile({7}, 0), 7);
}

TEST(Table, BarsAreSaidInWords) {
  EXPECT_EQ(text_of({{.factor = 1.5, .plus = 1}, {.of = "bwrap", .factor = 1}}, Unit::milliseconds),
            "limit x 1.5 + 1 ms, bwrap x 1");
  EXPECT_EQ(text_of({{.plus = 512}}, Unit::bytes), "512 bytes");
}

}  // namespace
}  // namespace casemate::bench
