#include "casemate/mcp/http_events.h"

#include <gtest/gtest.h>

#include <thread>

#include "casemate/mcp/http_outlet.h"

namespace casemate::mcp {
namespace {

using Kind = EventStream::Kind;
using Keeping = EventStream::Keeping;

std::string read_all(EventStream& stream) {
  std::string text;
  while (const auto event = stream.next()) {
    text += std::to_string(event->number) + *event->message + " ";
  }
  return text;
}

TEST(EventStream, NotificationsOverTheBoundGoOldestFirstAndRepliesStay) {
  EventStream stream("s", Keeping::unread_only, 10);
  stream.push(Kind::reply, std::string(100, 'r'));
  stream.push(Kind::notification, "aaaaa");
  stream.push(Kind::notification, "bbbbb");
  EXPECT_EQ(stream.held_bytes(), 110u);  // at the bound
  stream.push(Kind::notification, "c");
  EXPECT_EQ(stream.held_bytes(), 106u);
  stream.push(Kind::notification, std::string(11, 'd'));  // over the bound by itself
  stream.push_last(Kind::reply, "end");
  EXPECT_EQ(read_all(stream), "1" + std::string(100, 'r') + " 6end ");
  EXPECT_TRUE(stream.at_end());
  EXPECT_EQ(stream.held_bytes(), 0u);
}

TEST(EventStream, AClientThatComesBackReadsBehindTheEventThatItNames) {
  EventStream stream("s", Keeping::everything, 100);
  stream.push(Kind::notification, "a");
  stream.push(Kind::notification, "b");
  EXPECT_EQ(read_all(stream), "1a 2b ");
  int woken = 0;
  stream.listen(1, [&woken] { ++woken; });
  EXPECT_EQ(woken, 1);  // there is something already
  EXPECT_EQ(read_all(stream), "2b ");
  EXPECT_FALSE(stream.at_end());
  stream.push_last(Kind::reply, "c");
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(read_all(stream), "3c ");
  EXPECT_TRUE(stream.at_end());
  stream.listen(3, [&woken] { ++woken; });
  EXPECT_TRUE(stream.at_end());
}

TEST(EventStream, WhoeverListenedBeforeIsToldThatHeDoesNoLonger) {
  EventStream stream("s", Keeping::everything, 100);
  int first = 0;
  const auto earlier = stream.listen(0, [&first] { ++first; });
  EXPECT_TRUE(stream.listens(earlier));
  const auto later = stream.listen(0, [] {});
  EXPECT_EQ(first, 1);
  EXPECT_FALSE(stream.listens(earlier));
  stream.stop_listening(earlier);  // not his any more
  EXPECT_TRUE(stream.listens(later));
  stream.stop_listening(later);
  EXPECT_FALSE(stream.has_listener());
}

TEST(EventStream, NothingFollowsTheEnd) {
  EventStream stream("s", Keeping::unread_only, 100);
  stream.push_last(Kind::reply, "a");
  stream.push(Kind::reply, "b");
  EXPECT_EQ(read_all(stream), "1a ");
}

TEST(EventStream, MessagesOfSeveralThreadsAreReadOnceEach) {
  EventStream stream("s", Keeping::unread_only, 1'000'000);
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer) {
      writers.emplace_back([&stream] {
        for (int count = 0; count < 1000; ++count) stream.push(Kind::notification, "x");
      });
    }
  }
  std::uint64_t expected = 0;
  while (const auto event = stream.next()) ASSERT_EQ(event->number, ++expected);
  EXPECT_EQ(expected, 4000u);
}

TEST(StreamOutlet, TheLastReplyComesTogetherWithTheEnd) {
  const auto stream = std::make_shared<EventStream>("s", Keeping::unread_only, 100);
  StreamOutlet outlet(stream);
  outlet.send({"n", Outgoing::Kind::notification});
  outlet.send({"r", Outgoing::Kind::reply, 404});
  EXPECT_EQ(read_all(*stream), "1n ");
  int woken = 0;
  bool ended = false;
  stream->listen(1, [&] {
    ++woken;
    ended = stream->finished();
  });
  outlet.finished();
  EXPECT_EQ(woken, 1);
  EXPECT_TRUE(ended);
  const auto reply = stream->next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404u);
  EXPECT_TRUE(stream->at_end());
}

TEST(StreamOutlet, AnAnswerOfNothingEndsItsStream) {
  const auto stream = std::make_shared<EventStream>("s", Keeping::unread_only, 100);
  StreamOutlet(stream).finished();
  EXPECT_TRUE(stream->at_end());
}

TEST(EventId, IsReadBackAndAnythingElseIsNone) {
  const auto id = parse_event_id(to_text({"ab12", 7}));
  ASSERT_TRUE(id);
  EXPECT_EQ(id->stream, "ab12");
  EXPECT_EQ(id->number, 7u);
  for (const std::string_view text :
       {"", ".", "a", "a.", ".1", "a.x", "a.-1", "a.1x", "a. 1", "a.99999999999999999999"}) {
    EXPECT_FALSE(parse_event_id(text)) << text;
  }
  EXPECT_FALSE(parse_event_id(std::string(65, 'a') + ".1"));
}

TEST(EventText, IsWhatTheStandardForEventStreamsHas) {
  EXPECT_EQ(event_frame("s.1").before, "id: s.1\ndata: ");
  EXPECT_EQ(event_frame("").before, "data: ");
  EXPECT_EQ(event_frame("").behind, "\n\n");
  EXPECT_EQ(priming_event_text("s.0", 1000), "id: s.0\nretry: 1000\ndata: \n\n");
}

}  // namespace
}  // namespace casemate::mcp
