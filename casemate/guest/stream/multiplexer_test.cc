#include "casemate/guest/stream/multiplexer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/guest/stream/message_bytes_test.h"

namespace casemate::guest {
namespace {

using namespace std::string_literals;

// One side, which notes what it is told and answers a stop as it must.
struct Side : StreamEvents {
  explicit Side(StreamSide side, std::uint32_t others = 8) : multiplexer(side, others, *this) {}

  void on_ready() override { events.push_back("ready"); }
  void on_open(ChannelId channel, ChannelKind kind, ChannelId related) override {
    events.push_back("open " + std::to_string(channel) + " " +
                     std::to_string(static_cast<int>(kind)) + " " + std::to_string(related));
    opened.push_back(channel);
  }
  void on_data(ChannelId channel, std::string_view bytes) override {
    got[channel] += bytes;
    untaken[channel] += bytes.size();
  }
  void on_room(ChannelId channel) override { rooms.push_back(channel); }
  void on_end(ChannelId channel) override {
    events.push_back("end " + std::to_string(channel));
    ended.insert(channel);
  }
  void on_stop(ChannelId channel) override {
    events.push_back("stop " + std::to_string(channel));
    multiplexer.end(channel);
  }
  void on_goodbye() override { events.push_back("goodbye"); }

  // What waits to be sent, taken.
  std::string take() {
    const std::string bytes(multiplexer.pending());
    multiplexer.sent(bytes.size());
    return bytes;
  }
  void hear(std::string_view bytes) { multiplexer.receive({bytes.data(), bytes.size()}); }

  Multiplexer multiplexer;
  std::vector<std::string> events;
  std::vector<ChannelId> opened;
  std::vector<ChannelId> rooms;
  std::set<ChannelId> ended;
  std::map<ChannelId, std::string> got;
  std::map<ChannelId, std::size_t> untaken;
};

std::string number(std::uint32_t value) { return Writer().u32(value).take(); }
std::string opening(ChannelKind kind, ChannelId related) {
  return Writer().u8(static_cast<std::uint8_t>(kind)).u32(related).take();
}
std::string hello(std::uint32_t version = kStreamVersion, std::uint32_t channels = 8) {
  return message(0, 1, "casemate" + number(version) + number(channels));
}

constexpr int kOpen = 2;
constexpr int kData = 3;
constexpr int kCredit = 4;
constexpr int kEnd = 5;
constexpr int kStop = 6;
constexpr int kGoodbye = 7;

// Both sides, joined.
struct Pair {
  Pair() { settle(); }
  void settle() {
    while (!host.multiplexer.pending().empty() || !guest.multiplexer.pending().empty()) {
      guest.hear(host.take());
      host.hear(guest.take());
    }
  }
  Side host{StreamSide::host};
  Side guest{StreamSide::guest};
};

void send(Side& side, ChannelId channel, std::string_view bytes) {
  side.multiplexer.send(channel, {bytes.data(), bytes.size()});
}

// -- Honest sides --------------------------------------------------------------------------------

TEST(Multiplexer, OpensChannelsOnceBothHaveSaidHello) {
  Side host(StreamSide::host);
  EXPECT_FALSE(host.multiplexer.can_open());
  EXPECT_THROW(host.multiplexer.open(ChannelKind::control, 0), std::logic_error);
  host.hear(hello());
  EXPECT_EQ(host.events, std::vector{"ready"s});
  EXPECT_TRUE(host.multiplexer.can_open());
}

TEST(Multiplexer, CarriesBytesBothWaysInOrder) {
  Pair pair;
  const ChannelId channel = pair.host.multiplexer.open(ChannelKind::control, 0);
  send(pair.host, channel, "one ");
  send(pair.host, channel, "two");
  pair.settle();
  EXPECT_EQ(pair.guest.got[channel], "one two");
  send(pair.guest, channel, "three");
  pair.settle();
  EXPECT_EQ(pair.host.got[channel], "three");
}

TEST(Multiplexer, TakesWhatComesInAnyPieces) {
  Side host(StreamSide::host);
  host.hear(hello());
  const ChannelId channel = host.multiplexer.open(ChannelKind::control, 0);
  send(host, channel, std::string(1000, 'x'));
  host.multiplexer.end(channel);
  const std::string all = host.take();
  for (std::size_t piece = 1; piece <= all.size(); piece += 1 + piece / 3) {
    Side guest(StreamSide::guest);
    for (std::size_t at = 0; at < all.size(); at += piece) guest.hear(all.substr(at, piece));
    EXPECT_EQ(guest.got[channel], std::string(1000, 'x')) << piece;
    EXPECT_TRUE(guest.ended.contains(channel)) << piece;
  }
}

TEST(Multiplexer, SendsNoMoreThanThereIsRoomAndGoesOnWhenItWasTaken) {
  Pair pair;
  const ChannelId channel = pair.host.multiplexer.open(ChannelKind::control, 0);
  std::size_t sent = 0;
  while (const std::size_t room = pair.host.multiplexer.room(channel)) {
    EXPECT_LE(room, kMaxStreamPayload);
    send(pair.host, channel, std::string(room, 'x'));
    sent += room;
  }
  EXPECT_EQ(sent, kChannelWindow);
  EXPECT_THROW(send(pair.host, channel, "x"), std::logic_error);
  pair.settle();
  EXPECT_TRUE(pair.host.rooms.empty());
  pair.guest.multiplexer.taken(channel, kChannelWindow);
  EXPECT_THROW(pair.guest.multiplexer.taken(channel, 1), std::logic_error);
  pair.settle();
  EXPECT_EQ(pair.host.rooms, std::vector{channel});
  EXPECT_EQ(pair.host.multiplexer.room(channel), kMaxStreamPayload);
}

TEST(Multiplexer, AChannelThatNobodyReadsHoldsUpNoOther) {
  Pair pair;
  const ChannelId stuck = pair.host.multiplexer.open(ChannelKind::control, 0);
  const ChannelId other = pair.host.multiplexer.open(ChannelKind::control, 0);
  while (const std::size_t room = pair.host.multiplexer.room(stuck)) {
    send(pair.host, stuck, std::string(room, 'x'));
  }
  send(pair.host, other, "cancel");
  pair.settle();
  EXPECT_EQ(pair.guest.got[other], "cancel");
  // Nor what is urgent of itself.
  pair.host.multiplexer.stop(stuck);
  pair.host.multiplexer.end(stuck);
  pair.settle();
  EXPECT_TRUE(pair.guest.ended.contains(stuck));
  EXPECT_FALSE(pair.host.multiplexer.is_open(stuck));
}

TEST(Multiplexer, EachDirectionEndsForItselfAndTheChannelWithBoth) {
  Pair pair;
  const ChannelId channel = pair.host.multiplexer.open(ChannelKind::control, 0);
  pair.host.multiplexer.end(channel);
  pair.settle();
  EXPECT_TRUE(pair.guest.multiplexer.is_open(channel));
  EXPECT_EQ(pair.host.multiplexer.room(channel), 0U);
  send(pair.guest, channel, "last");
  pair.guest.multiplexer.end(channel);
  pair.settle();
  EXPECT_EQ(pair.host.got[channel], "last");
  EXPECT_FALSE(pair.host.multiplexer.is_open(channel));
  EXPECT_FALSE(pair.guest.multiplexer.is_open(channel));
  EXPECT_NE(pair.host.multiplexer.open(ChannelKind::control, 0), channel);
}

TEST(Multiplexer, WhatIsUnderWayToWhoStoppedIsPassedOver) {
  Pair pair;
  const ChannelId channel = pair.host.multiplexer.open(ChannelKind::control, 0);
  pair.settle();
  send(pair.guest, channel, "for nobody");
  pair.host.multiplexer.stop(channel);
  pair.settle();
  EXPECT_EQ(pair.host.got[channel], "");
  EXPECT_TRUE(pair.host.ended.contains(channel));
}

TEST(Multiplexer, CreditAndStopThatCrossAnEndAreNoFault) {
  Pair pair;
  const ChannelId channel = pair.host.multiplexer.open(ChannelKind::control, 0);
  send(pair.host, channel, std::string(kMaxStreamPayload, 'x'));
  send(pair.host, channel, std::string(kMaxStreamPayload, 'x'));
  pair.settle();
  // Both end at once, each with something on its way.
  pair.guest.multiplexer.taken(channel, 2 * kMaxStreamPayload);
  pair.guest.multiplexer.stop(channel);
  pair.guest.multiplexer.end(channel);
  pair.host.multiplexer.end(channel);
  pair.settle();
  EXPECT_FALSE(pair.host.multiplexer.is_open(channel));
  EXPECT_FALSE(pair.guest.multiplexer.is_open(channel));
}

TEST(Multiplexer, TheGuestOpensConnectionsToListenersOfTheHost) {
  Pair pair;
  const ChannelId control = pair.host.multiplexer.open(ChannelKind::control, 0);
  const ChannelId listener = pair.host.multiplexer.open(ChannelKind::listener, control);
  pair.settle();
  const ChannelId connection = pair.guest.multiplexer.open(ChannelKind::stream, listener);
  EXPECT_EQ(connection, kGuestFirst);
  send(pair.guest, connection, "call");
  pair.settle();
  EXPECT_EQ(pair.host.got[connection], "call");
  // Also to one that is over already, which the host refuses by itself.
  const ChannelId late = pair.guest.multiplexer.open(ChannelKind::stream, listener);
  pair.host.multiplexer.end(listener);
  pair.guest.multiplexer.end(listener);
  pair.settle();
  EXPECT_TRUE(pair.host.multiplexer.is_open(late));
}

TEST(Multiplexer, AGoodbyeIsTheEndAndAnythingElseIsNot) {
  Pair pair;
  pair.host.multiplexer.open(ChannelKind::control, 0);
  pair.settle();
  EXPECT_THROW(pair.guest.multiplexer.receive_end(), ProtocolError);
  pair.host.multiplexer.say_goodbye();
  EXPECT_FALSE(pair.host.multiplexer.can_open());
  // What was on its way is for nobody.
  send(pair.guest, 1, "late");
  pair.settle();
  EXPECT_EQ(pair.guest.events.back(), "goodbye");
  EXPECT_EQ(pair.guest.multiplexer.open_channels(), 0U);
  EXPECT_FALSE(pair.guest.multiplexer.can_open());
  pair.guest.multiplexer.receive_end();
  EXPECT_THROW(pair.guest.hear("x"), ProtocolError);
}

TEST(Multiplexer, OpensNoMoreThanTheOtherSideAllows) {
  Pair pair;
  for (int i = 0; i < 8; ++i) pair.host.multiplexer.open(ChannelKind::control, 0);
  EXPECT_FALSE(pair.host.multiplexer.can_open());
  pair.settle();
  EXPECT_EQ(pair.guest.opened.size(), 8U);
  pair.guest.multiplexer.end(1);
  pair.host.multiplexer.end(1);
  pair.settle();
  EXPECT_TRUE(pair.host.multiplexer.can_open());
}

// -- Lying sides ---------------------------------------------------------------------------------

// A host that has heard the guest's hello, and has a listener (2) of a call (1).
struct ReadyHost : Side {
  ReadyHost() : Side(StreamSide::host) {
    hear(hello());
    multiplexer.open(ChannelKind::control, 0);
    multiplexer.open(ChannelKind::listener, 1);
    take();
  }
};

struct ReadyGuest : Side {
  ReadyGuest() : Side(StreamSide::guest) {
    hear(hello());
    hear(message(1, kOpen, opening(ChannelKind::control, 0)));
    hear(message(2, kOpen, opening(ChannelKind::listener, 1)));
    take();
  }
};

TEST(LyingStream, BeginsWithAHelloOfThisVersion) {
  for (const std::string& first :
       {message(1, kOpen, opening(ChannelKind::control, 0)), message(0, kGoodbye),
        "GRUB loading..."s, std::string(8, '\0'), message(1, 1, hello().substr(8)),
        message(0, 1, "casemate"), message(0, 1, hello().substr(8) + "x"),
        message(0, 1, "kasemate" + number(1) + number(8)),
        hello(kStreamVersion, kMaxStreamChannels + 1)}) {
    Side host(StreamSide::host);
    EXPECT_THROW(host.hear(first), ProtocolError) << first;
  }
  Side host(StreamSide::host);
  EXPECT_THROW(host.hear(hello(kStreamVersion + 1)), OtherStreamVersion);
  ReadyHost ready;
  EXPECT_THROW(ready.hear(hello()), ProtocolError);
}

TEST(LyingStream, IsRefusedForEveryMessageThatNoHonestGuestSends) {
  const std::string to_listener = message(kGuestFirst, kOpen, opening(ChannelKind::stream, 2));
  for (const std::string& bytes : {
           // Headers.
           message(1, 0),
           message(1, 8),
           "\1\0\0\0\0\0\3\1"s,
           "\1\0\0\0\1\x40\3\0"s,
           // Openings: of other kinds, to what is no listener, with a number that is not the next.
           message(kGuestFirst, kOpen, opening(ChannelKind::control, 0)),
           message(kGuestFirst, kOpen, opening(ChannelKind::listener, 1)),
           message(kGuestFirst, kOpen, opening(ChannelKind::token, 1)),
           message(kGuestFirst, kOpen, Writer().u8(4).u32(2).take()),
           message(kGuestFirst, kOpen, opening(ChannelKind::stream, 1)),
           message(kGuestFirst, kOpen, opening(ChannelKind::stream, 0)),
           message(kGuestFirst, kOpen, opening(ChannelKind::stream, 3)),
           message(kGuestFirst, kOpen, opening(ChannelKind::stream, kGuestFirst)),
           message(kGuestFirst, kOpen, opening(ChannelKind::stream, 2) + "x"),
           message(kGuestFirst, kOpen, "\1"),
           message(kGuestFirst + 1, kOpen, opening(ChannelKind::stream, 2)),
           message(3, kOpen, opening(ChannelKind::stream, 2)),
           to_listener + to_listener,
           // Data: without a channel, of a listener, empty, after the end.
           message(3, kData, "x"),
           message(0, kData, "x"),
           message(kGuestFirst, kData, "x"),
           message(2, kData, "x"),
           message(1, kData, ""),
           message(1, kEnd) + message(1, kData, "x"),
           // Credit: more than was used, none, of no channel.
           message(1, kCredit, number(1)),
           message(1, kCredit, number(0)),
           message(3, kCredit, number(1)),
           message(1, kCredit, "1"),
           message(2, kCredit, number(1)),
           message(kGuestFirst, kCredit, number(1)),
           // Ends: twice, of no channel, with a payload.
           message(1, kEnd) + message(1, kEnd),
           message(3, kEnd),
           message(1, kEnd, "x"),
           message(1, kStop) + message(1, kStop),
           message(0, kStop),
           message(3, kStop),
           message(0, kGoodbye, "x"),
           message(0, kGoodbye) + message(1, kEnd),
       }) {
    ReadyHost host;
    EXPECT_THROW(host.hear(bytes), ProtocolError) << testing::PrintToString(bytes);
  }
}

TEST(LyingStream, IsRefusedForEveryMessageThatNoHonestHostSends) {
  for (const std::string& bytes : {
           message(3, kOpen, opening(ChannelKind::control, 1)),
           message(3, kOpen, opening(ChannelKind::stream, 0)),
           message(3, kOpen, opening(ChannelKind::stream, 2)),
           message(3, kOpen, opening(ChannelKind::stream, 3)),
           message(1, kEnd) + message(3, kOpen, opening(ChannelKind::stream, 1)),
           message(kGuestFirst, kOpen, opening(ChannelKind::control, 0)),
           message(1, kOpen, opening(ChannelKind::control, 0)),
           message(2, kData, "x"),
       }) {
    ReadyGuest guest;
    EXPECT_THROW(guest.hear(bytes), ProtocolError) << testing::PrintToString(bytes);
  }
}

TEST(LyingStream, OpensNoMoreChannelsThanWereAllowed) {
  ReadyHost host;
  for (ChannelId i = 0; i < 8; ++i) {
    host.hear(message(kGuestFirst + i, kOpen, opening(ChannelKind::stream, 2)));
  }
  EXPECT_THROW(host.hear(message(kGuestFirst + 8, kOpen, opening(ChannelKind::stream, 2))),
               ProtocolError);
}

TEST(LyingStream, SendsNoMoreThanItHasCreditFor) {
  ReadyHost host;
  for (std::uint32_t sent = 0; sent < kChannelWindow; sent += kMaxStreamPayload) {
    host.hear(message(1, kData, std::string(kMaxStreamPayload, 'x')));
  }
  EXPECT_EQ(host.got[1].size(), kChannelWindow);
  EXPECT_THROW(host.hear(message(1, kData, "x")), ProtocolError);
}

TEST(LyingStream, ThatDoesNotReadWhatItAsksForIsEnded) {
  ReadyHost host;
  EXPECT_THROW(
      {
        for (ChannelId i = 0; i < 1'000'000; ++i) {
          const ChannelId channel = kGuestFirst + i;
          host.hear(message(channel, kOpen, opening(ChannelKind::stream, 2)));
          host.multiplexer.stop(channel);
          host.multiplexer.end(channel);
          host.hear(message(channel, kEnd));
          ASSERT_LE(host.multiplexer.pending().size(), kMaxStreamPending);
        }
      },
      ProtocolError);
}

TEST(LyingStream, ThatEndsWithinAMessageIsTold) {
  ReadyHost host;
  host.hear(message(1, kData, "xyz").substr(0, 10));
  EXPECT_THROW(host.multiplexer.receive_end(), ProtocolError);
}

// -- Any honest sides ----------------------------------------------------------------------------

// A walk through what two sides may do, with the stream between them cut anywhere. What one side
// sent is what the other got, in order; no side ever has more than it asked for; and when
// everything was taken and ended there are no channels.
RC_GTEST_PROP(MultiplexerProperty, AnyHonestConversationComesOverWhole, ()) {
  Pair pair;
  std::map<std::pair<bool, ChannelId>, std::string> sent;
  std::string to_guest;
  std::string to_host;
  const auto side = [&](bool host) -> Side& { return host ? pair.host : pair.guest; };
  std::vector<ChannelId> channels;
  std::set<std::pair<bool, ChannelId>> ended;
  const auto move = [&](bool host, std::size_t most) {
    std::string& way = host ? to_guest : to_host;
    way += side(host).take();
    const std::size_t size = std::min(most, way.size());
    side(!host).hear(way.substr(0, size));
    way.erase(0, size);
  };
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    const bool host = *rc::gen::arbitrary<bool>();
    Side& here = side(host);
    const int act = *rc::gen::inRange(0, 6);
    if (act == 0 && host && here.multiplexer.can_open()) {
      channels.push_back(here.multiplexer.open(ChannelKind::control, 0));
    }
    if (act == 1) move(host, static_cast<std::size_t>(*rc::gen::inRange(1, 40'000)));
    if (channels.empty()) continue;
    const ChannelId channel = *rc::gen::elementOf(channels);
    if (!here.multiplexer.is_open(channel)) continue;
    if (act == 2 || act == 3) {
      const std::size_t room = here.multiplexer.room(channel);
      if (room != 0) {
        const auto size = std::min(room, static_cast<std::size_t>(*rc::gen::inRange(1, 17'000)));
        const std::string bytes(size, static_cast<char>('a' + step % 26));
        send(here, channel, bytes);
        sent[{host, channel}] += bytes;
      }
    }
    if (act == 4 && here.untaken[channel] != 0) {
      const auto most = static_cast<int>(here.untaken[channel]);
      const auto size = static_cast<std::size_t>(*rc::gen::inRange(1, most + 1));
      here.multiplexer.taken(channel, size);
      here.untaken[channel] -= size;
    }
    if (act == 5 && ended.emplace(host, channel).second) here.multiplexer.end(channel);
    RC_ASSERT(here.untaken[channel] <= kChannelWindow);
    RC_ASSERT(here.multiplexer.pending().size() <= kMaxStreamPending);
  }
  for (int i = 0; i < 4; ++i) {
    move(true, SIZE_MAX);
    move(false, SIZE_MAX);
    for (const ChannelId channel : channels) {
      for (const bool host : {true, false}) {
        if (side(host).multiplexer.is_open(channel) && ended.emplace(host, channel).second) {
          side(host).multiplexer.end(channel);
        }
      }
    }
  }
  for (const auto& [key, bytes] : sent) {
    RC_ASSERT(side(!key.first).got[key.second] == bytes);
  }
  RC_ASSERT(pair.host.multiplexer.open_channels() == 0U);
  RC_ASSERT(pair.guest.multiplexer.open_channels() == 0U);
}

}  // namespace
}  // namespace casemate::guest
