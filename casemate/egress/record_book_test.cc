#include "casemate/egress/record_book.h"

#include <gtest/gtest.h>

#include <string>

namespace casemate {
namespace {

using Kind = EgressRecordBook::Place::Kind;

EgressRecord record(const std::string& host, EgressDecision decision) {
  return {.host = host,
          .port = 443,
          .decision = decision,
          .reason = "why",
          .bytes_out = 2,
          .bytes_in = 3};
}

Kind add(EgressRecordBook& book, const std::string& host, EgressDecision decision) {
  const EgressRecordBook::Place place = book.begin(record(host, decision));
  book.finish(place, record(host, decision));
  return place.kind;
}

TEST(EgressRecordBook, KeepsTheOrderOfDecisions) {
  EgressRecordBook book;
  const auto first = book.begin(record("a.test", EgressDecision::allowed));
  const auto second = book.begin(record("b.test", EgressDecision::denied));
  book.finish(second, record("b2.test", EgressDecision::denied));
  book.finish(first, record("a2.test", EgressDecision::denied));
  EXPECT_EQ(book.records(), (std::vector{record("a2.test", EgressDecision::denied),
                                         record("b2.test", EgressDecision::denied)}));
}

TEST(EgressRecordBook, AFloodOfRefusalsHidesNoConnection) {
  EgressRecordBook book;
  for (std::size_t index = 0; index < EgressRecordBook::kRefusals; ++index) {
    EXPECT_EQ(add(book, "noise.test", EgressDecision::denied), Kind::own);
  }
  EXPECT_EQ(add(book, "noise.test", EgressDecision::denied), Kind::counted);
  EXPECT_EQ(add(book, "a.test", EgressDecision::allowed), Kind::own);
  const std::vector<EgressRecord> all = book.records();
  ASSERT_EQ(all.size(), EgressRecordBook::kRefusals + 2);
  EXPECT_EQ(all[EgressRecordBook::kRefusals].host, "a.test");
  EXPECT_EQ(all.back().reason, "1 more decisions, 0 of them allowed");
}

TEST(EgressRecordBook, AFloodOfConnectionsIsAddedToEarlierOnesAndTheRestIsCounted) {
  EgressRecordBook book;
  for (std::size_t index = 0; index < EgressRecordBook::kConnections; ++index) {
    EXPECT_EQ(add(book, "h" + std::to_string(index) + ".test", EgressDecision::allowed), Kind::own);
  }
  EXPECT_EQ(add(book, "h7.test", EgressDecision::allowed), Kind::added);
  EXPECT_EQ(add(book, "new.test", EgressDecision::allowed), Kind::counted);
  EXPECT_EQ(add(book, "b.test", EgressDecision::denied), Kind::own);
  std::vector<EgressRecord> all = book.records();
  ASSERT_EQ(all.size(), EgressRecordBook::kConnections + 2);
  EXPECT_EQ(all[7].bytes_out, 4U);
  EXPECT_EQ(all[7].bytes_in, 6U);
  EXPECT_EQ(all.back().reason, "1 more decisions, 1 of them allowed");
  EXPECT_EQ(all.back().bytes_out, 2U);
  EXPECT_EQ(all.back().decision, EgressDecision::allowed);
  for (std::size_t index = 0; index < kMaxEgressRecords; ++index) {
    add(book, "noise.test", EgressDecision::denied);
  }
  EXPECT_EQ(book.records().size(), kMaxEgressRecords) << "and no more";
}

TEST(EgressRecordBook, WhatWasAddedToAConnectionOutlivesItsEnd) {
  EgressRecordBook book;
  const auto first = book.begin(record("a.test", EgressDecision::allowed));
  for (std::size_t index = 1; index < EgressRecordBook::kConnections; ++index) {
    add(book, "b.test", EgressDecision::allowed);
  }
  EXPECT_EQ(add(book, "a.test", EgressDecision::allowed), Kind::added);
  book.finish(first, record("a.test", EgressDecision::allowed));
  EXPECT_EQ(book.records().front().bytes_out, 4U);
  EXPECT_EQ(book.records().front().bytes_in, 6U);
}

TEST(EgressRecordBook, AConnectionThatIsCutOffIsARefusalAlsoWhenItWasAddedToAnother) {
  EgressRecordBook book;
  for (std::size_t index = 0; index < EgressRecordBook::kConnections; ++index) {
    add(book, "a.test", EgressDecision::allowed);
  }
  const auto added = book.begin(record("a.test", EgressDecision::allowed));
  ASSERT_EQ(added.kind, Kind::added);
  book.finish(added, record("a.test", EgressDecision::denied));
  EXPECT_EQ(book.records().back(), record("a.test", EgressDecision::denied));
  EXPECT_EQ(book.records().front().bytes_out, 2U);
}

}  // namespace
}  // namespace casemate
