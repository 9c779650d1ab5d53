#include "casemate/egress/record_book.h"

#include <gtest/gtest.h>

namespace casemate {
namespace {

EgressRecord record(std::uint16_t port, EgressDecision decision = EgressDecision::denied) {
  return {.host = "a.test",
          .port = port,
          .decision = decision,
          .reason = "",
          .bytes_out = 2,
          .bytes_in = 3};
}

TEST(EgressRecordBook, KeepsTheOrderOfDecisions) {
  EgressRecordBook book;
  const std::size_t first = book.begin(record(1));
  const std::size_t second = book.begin(record(2));
  book.finish(second, record(20));
  book.finish(first, record(10));
  EXPECT_EQ(book.records(), (std::vector{record(10), record(20)}));
}

TEST(EgressRecordBook, CountsWhatItDoesNotKeep) {
  EgressRecordBook book;
  for (std::uint16_t port = 1; port < kMaxEgressRecords; ++port) {
    book.finish(book.begin(record(port)), record(port));
  }
  ASSERT_EQ(book.records().size(), kMaxEgressRecords - 1);
  EXPECT_EQ(book.records().back().port, 999);
  for (const EgressDecision decision :
       {EgressDecision::denied, EgressDecision::allowed, EgressDecision::denied}) {
    const std::size_t number = book.begin(record(7, decision));
    EXPECT_FALSE(EgressRecordBook::is_kept(number));
    book.finish(number, record(7, decision));
  }
  const std::vector<EgressRecord> all = book.records();
  ASSERT_EQ(all.size(), kMaxEgressRecords);
  EXPECT_EQ(all[998].port, 999) << "those before stay";
  EXPECT_EQ(all.back().reason, "3 more decisions, 1 of them allowed");
  EXPECT_EQ(all.back().bytes_out, 6U);
  EXPECT_EQ(all.back().bytes_in, 9U);
}

}  // namespace
}  // namespace casemate
