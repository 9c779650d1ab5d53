#include "casemate/guest/frame.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <system_error>

#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

using namespace std::string_literals;

struct Pair {
  Pair() : Pair(sys::socket_pair(sys::SocketType::stream)) {}
  explicit Pair(std::pair<sys::UniqueFd, sys::UniqueFd> ends)
      : near(std::move(ends.first)), far(std::move(ends.second)) {}
  void send(std::string_view bytes) {
    ASSERT_EQ(sys::send_message(near.get(), bytes, {}, sys::Blocking::no), bytes.size());
  }
  sys::UniqueFd near;
  sys::UniqueFd far;
};

TEST(Frame, ArrivesWholeHoweverItIsCut) {
  Pair pair;
  FrameReader reader(pair.far.get());
  const std::string bytes = "\x03\0\0\0\x07\0\0\0abc"s;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    pair.send(std::string_view(bytes).substr(i, 1));
    EXPECT_FALSE(reader.next());
  }
  pair.send("c");
  const auto frame = reader.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->type, 7);
  EXPECT_EQ(frame->payload, "abc");
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.closed());
}

TEST(Frame, APayloadOfExactlyTheBoundPassesAndOneMoreIsRefusedBeforeItArrives) {
  {
    Pair pair;
    FrameReader reader(pair.far.get());
    FrameWriter writer(pair.near.get());
    writer.put(9, std::string(kMaxPayload, 'x'));
    std::optional<Frame> frame;
    while (!frame) {
      writer.flush();
      frame = reader.next();
    }
    EXPECT_EQ(frame->payload.size(), kMaxPayload);
    EXPECT_EQ(writer.pending(), 0U);
    EXPECT_THROW(writer.put(9, std::string(kMaxPayload + 1, 'x')), std::length_error);
  }
  Pair pair;
  FrameReader reader(pair.far.get());
  pair.send("\x01\x00\x10\0\x07\0\0\0"s);  // 1 MiB + 1
  EXPECT_THROW(reader.next(), ProtocolError);
}

TEST(Frame, ReservedBytesMustBeZero) {
  Pair pair;
  FrameReader reader(pair.far.get());
  pair.send("\0\0\0\0\x07\0\x01\0"s);
  EXPECT_THROW(reader.next(), ProtocolError);
}

TEST(Frame, AStreamThatEndsInsideAFrameIsAViolationAndBetweenFramesIsTheEnd) {
  for (const std::string& part : {"\x03\0"s, "\x03\0\0\0\x07\0\0\0"s, "\x03\0\0\0\x07\0\0\0a"s}) {
    Pair pair;
    FrameReader reader(pair.far.get());
    pair.send(part);
    pair.near.reset();
    EXPECT_THROW(reader.next(), ProtocolError);
  }
  Pair pair;
  FrameReader reader(pair.far.get());
  pair.send("\0\0\0\0\x07\0\0\0"s);
  pair.near.reset();
  EXPECT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.closed());
}

TEST(Frame, DescriptorsBelongToTheFrameTheyWereSentWith) {
  Pair pair;
  FrameReader reader(pair.far.get());
  FrameWriter writer(pair.near.get());
  const sys::UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  writer.put(1, "first");
  writer.put(2, "second", std::array{null.get()});
  writer.put(3, "");
  EXPECT_TRUE(writer.flush());
  EXPECT_TRUE(reader.next()->descriptors.empty());
  EXPECT_EQ(reader.next()->descriptors.size(), 1U);
  EXPECT_TRUE(reader.next()->descriptors.empty());
}

TEST(Frame, MoreDescriptorsThanTheBoundAreAViolation) {
  Pair pair;
  const std::string header = "\x01\0\0\0\x07\0\0\0"s;
  FrameReader most(pair.far.get());
  const std::vector<int> descriptors(kMaxFrameDescriptors + 1, pair.near.get());
  sys::send_message(pair.near.get(), header + "a",
                    std::span(descriptors).first(kMaxFrameDescriptors), sys::Blocking::no);
  EXPECT_EQ(most.next()->descriptors.size(), kMaxFrameDescriptors);
  sys::send_message(pair.near.get(), header + "a", descriptors, sys::Blocking::no);
  EXPECT_THROW(most.next(), ProtocolError);
  FrameWriter writer(pair.near.get());
  EXPECT_THROW(writer.put(1, "", descriptors), std::length_error);
}

TEST(Frame, WritingToAPeerThatIsGoneThrows) {
  Pair pair;
  pair.far.reset();
  FrameWriter writer(pair.near.get());
  EXPECT_THROW(writer.send(1, "x"), std::system_error);
  writer.put(1, "x");
  EXPECT_THROW(writer.flush(), std::system_error);
}

TEST(Frame, WhatIsSentAtOnceKeepsItsPlaceAmongWhatIsQueued) {
  Pair pair;
  FrameReader reader(pair.far.get());
  FrameWriter writer(pair.near.get());
  // More than the socket takes: one of them goes in part.
  std::vector<std::string> sent;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    sent.emplace_back(kMaxData - static_cast<std::size_t>(letter), letter);
    writer.send(static_cast<std::uint8_t>(letter), sent.back());
  }
  EXPECT_NE(writer.pending(), 0U);
  std::vector<std::string> came;
  while (came.size() < sent.size()) {
    writer.flush();
    while (auto frame = reader.next()) {
      EXPECT_EQ(static_cast<char>(frame->type), frame->payload.front());
      came.push_back(frame->payload);
      // Longer and shorter ones follow in the same storage.
      reader.reuse(std::move(frame->payload));
    }
  }
  EXPECT_EQ(came, sent);
  EXPECT_EQ(writer.pending(), 0U);
  EXPECT_TRUE(writer.send(1, ""));
  EXPECT_EQ(reader.next()->payload, "");
  EXPECT_THROW(writer.send(9, std::string(kMaxPayload + 1, 'x')), std::length_error);
}

TEST(Frame, FieldsComeBackAsTheyWerePut) {
  const std::string payload =
      Writer().u8(200).u32(0xfedcba98).u64(0x0123456789abcdef).i32(-5).string("a\0b"s).take();
  EXPECT_EQ(payload.substr(1, 4), "\x98\xba\xdc\xfe"s);
  Reader reader(payload);
  EXPECT_EQ(reader.u8(), 200);
  EXPECT_EQ(reader.u32(), 0xfedcba98U);
  EXPECT_EQ(reader.u64(), 0x0123456789abcdefU);
  EXPECT_EQ(reader.i32(), -5);
  EXPECT_EQ(reader.string(3), "a\0b"s);
  EXPECT_TRUE(reader.at_end());
  reader.finish();
}

TEST(Frame, FieldsBeyondThePayloadAreRefused) {
  EXPECT_THROW(Reader("").u8(), ProtocolError);
  EXPECT_THROW(Reader("abc").u32(), ProtocolError);
  EXPECT_THROW(Reader("abcdefg").u64(), ProtocolError);
  EXPECT_THROW(Reader("\x04\0\0\0abc"s).string(100), ProtocolError);
  EXPECT_THROW(Reader("\xff\xff\xff\xff"s).string(100), ProtocolError);
  EXPECT_THROW(Reader("a").finish(), ProtocolError);
  EXPECT_THROW(Reader("\x02").flag(), ProtocolError);
}

TEST(Frame, AStringAtItsBoundPassesAndOneMoreIsRefused) {
  const std::string payload = Writer().string("abc").take();
  EXPECT_EQ(Reader(payload).string(3), "abc");
  EXPECT_THROW(Reader(payload).string(2), ProtocolError);
  const std::string with_nul = Writer().string("a\0b"s).take();
  EXPECT_THROW(Reader(with_nul).c_string(3), ProtocolError);
}

}  // namespace
}  // namespace casemate::guest
