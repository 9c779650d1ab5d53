#include "casemate/mcp/http_answers.h"

#include <gtest/gtest.h>

#include "casemate/mcp/http_events.h"

namespace casemate::mcp {
namespace {

using Kind = EventStream::Kind;
using Keeping = EventStream::Keeping;

class AnswerStoreTest : public testing::Test {
 protected:
  std::shared_ptr<EventStream> stream(const std::string& caller,
                                      Keeping keeping = Keeping::everything) {
    return std::make_shared<EventStream>("s", keeping, 1000, store_, caller);
  }
  std::shared_ptr<AnswerStore> store_ = std::make_shared<AnswerStore>(100);
};

TEST_F(AnswerStoreTest, CountsAMessageForAsLongAsAnybodyHoldsIt) {
  const auto one = stream("me", Keeping::unread_only);
  one->push(Kind::reply, std::string(60, 'a'));
  EXPECT_EQ(store_->held_bytes(), 60u);
  {
    const auto read = one->next();
    EXPECT_EQ(one->held_bytes(), 0u);
    EXPECT_EQ(store_->held_bytes(), 60u) << "on its way";
  }
  EXPECT_EQ(store_->held_bytes(), 0u);
}

TEST_F(AnswerStoreTest, GivesUpWhatHasWaitedForLongestWhereThereIsTooMuch) {
  const auto one = stream("me");
  const auto two = stream("me");
  const auto three = stream("me");
  one->push(Kind::reply, std::string(50, 'a'));
  two->push(Kind::reply, std::string(50, 'b'));
  EXPECT_FALSE(one->is_given_up()) << "at the bound";
  int woken = 0;
  one->listen(0, [&woken] { ++woken; });
  three->push(Kind::reply, "c");
  EXPECT_TRUE(one->is_given_up());
  EXPECT_TRUE(one->finished());
  EXPECT_FALSE(one->next());
  EXPECT_EQ(woken, 2) << "its reader is told";
  EXPECT_FALSE(two->is_given_up());
  EXPECT_EQ(store_->held_bytes(), 51u);
}

TEST_F(AnswerStoreTest, TakesFromWhoHoldsMostAndNotFromWhoHoldsLongest) {
  const auto mine = stream("me");
  mine->push(Kind::reply, std::string(30, 'a'));
  std::vector<std::shared_ptr<EventStream>> theirs;
  for (int count = 0; count < 20; ++count) {
    theirs.push_back(stream("greedy"));
    theirs.back()->push(Kind::reply, std::string(10, 'b'));
  }
  EXPECT_FALSE(mine->is_given_up());
  EXPECT_TRUE(theirs.front()->is_given_up());
  EXPECT_FALSE(theirs.back()->is_given_up());
  EXPECT_LE(store_->held_bytes(), 100u);
}

TEST_F(AnswerStoreTest, HoldsOneThatIsLargerThanAllAlone) {
  const auto one = stream("me");
  const auto large = stream("other");
  one->push(Kind::notification, "a");
  large->push_last(Kind::reply, std::string(500, 'b'));
  EXPECT_TRUE(one->is_given_up());
  ASSERT_FALSE(large->is_given_up());
  EXPECT_EQ(large->next()->message->size(), 500u);
}

TEST_F(AnswerStoreTest, WhatWasGivenUpTakesNothingMore) {
  const auto one = stream("me");
  one->push(Kind::reply, std::string(90, 'a'));
  stream("me")->push(Kind::reply, std::string(90, 'b'));
  ASSERT_TRUE(one->is_given_up());
  one->push_last(Kind::reply, std::string(90, 'a'));
  EXPECT_EQ(one->held_bytes(), 0u);
  EXPECT_EQ(store_->held_bytes(), 0u) << "the other stream has gone with its message";
}

}  // namespace
}  // namespace casemate::mcp
