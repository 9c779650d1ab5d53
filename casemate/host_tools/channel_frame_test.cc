#include "casemate/host_tools/channel_frame.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "casemate/host_tools/channel_client_test.h"

namespace casemate {
namespace {

std::vector<ChannelRequest> read_all(ChannelReader& reader, std::string_view bytes,
                                     std::size_t step) {
  std::vector<ChannelRequest> requests;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    EXPECT_TRUE(reader.feed(bytes.substr(at, step), requests));
  }
  return requests;
}

TEST(ChannelReader, CutsRequestsHoweverTheyArrive) {
  const std::string bytes = channel_request(1, "a", "{}") + channel_request(2, "", "") +
                            channel_request(0xffffffff, "name", R"({"x":1})");
  for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{7}, bytes.size()}) {
    ChannelReader reader(1000);
    const auto requests = read_all(reader, bytes, step);
    ASSERT_EQ(requests.size(), 3U) << step;
    EXPECT_EQ(requests[0].name, "a");
    EXPECT_EQ(requests[0].arguments, "{}");
    EXPECT_EQ(requests[1].id, 2U);
    EXPECT_EQ(requests[1].name + requests[1].arguments, "");
    EXPECT_EQ(requests[2].id, 0xffffffffU);
    EXPECT_EQ(requests[2].arguments, R"({"x":1})");
    EXPECT_EQ(reader.held(), 0U);
  }
}

TEST(ChannelReader, SkipsWhatIsTooLargeAndKnowsWhoseItWas) {
  const std::string at = channel_request(5, "n", std::string(93, ' '));  // 6 + 1 + 93 bytes
  const std::string over = channel_request(6, "n", std::string(94, ' '));
  for (const std::size_t step : {std::size_t{1}, std::size_t{50}, std::size_t{1000}}) {
    ChannelReader reader(100);
    const auto requests = read_all(reader, at + over + at, step);
    ASSERT_EQ(requests.size(), 3U);
    EXPECT_FALSE(requests[0].too_large);
    EXPECT_TRUE(requests[1].too_large);
    EXPECT_EQ(requests[1].id, 6U);
    EXPECT_EQ(requests[2].arguments.size(), 93U);
  }
}

TEST(ChannelReader, HoldsNoMoreThanArrived) {
  ChannelReader reader(kMaxSkippedBytes);
  std::vector<ChannelRequest> requests;
  EXPECT_TRUE(reader.feed(little_endian(kMaxSkippedBytes, 4) + "12345678", requests));
  EXPECT_EQ(reader.held(), 8U);
  reader.skip_current();
  EXPECT_EQ(reader.held(), kMinRequestBytes);
  EXPECT_TRUE(reader.feed(std::string(kMaxSkippedBytes - 8, 'x'), requests));
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_TRUE(requests[0].no_room);
  EXPECT_FALSE(requests[0].too_large);
  EXPECT_EQ(requests[0].bytes, kMaxSkippedBytes);
}

TEST(EncodeAnswer, TellsACallerToTryAgainByAMarkOfItsOwn) {
  EXPECT_EQ(encode_try_again("no."), little_endian(15, 4) + little_endian(0, 4) + "\2Error: no.");
}

TEST(ChannelReader, GivesUpOnLengthsThatMakeNoSense) {
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{kMinRequestBytes - 1},
                                     kMaxSkippedBytes + 1, std::uint64_t{0xffffffff}}) {
    ChannelReader reader(100);
    std::vector<ChannelRequest> requests;
    EXPECT_FALSE(reader.feed(little_endian(length, 4), requests)) << length;
  }
}

TEST(ChannelReader, ANameLongerThanTheRequestIsMalformed) {
  ChannelReader reader(100);
  const std::string body = little_endian(9, 4) + little_endian(3, 2) + "ab";
  std::vector<ChannelRequest> requests;
  EXPECT_TRUE(reader.feed(little_endian(body.size(), 4) + body, requests));
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_TRUE(requests[0].malformed);
  EXPECT_EQ(requests[0].id, 9U);
}

RC_GTEST_PROP(ChannelReader, HoldsItsBoundsWhateverArrives, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  const auto step = *rc::gen::inRange<std::size_t>(1, 20);
  ChannelReader reader(64);
  std::vector<ChannelRequest> requests;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    if (!reader.feed(std::string_view(bytes).substr(at, step), requests)) break;
    RC_ASSERT(reader.held() <= 64U);
  }
  for (const ChannelRequest& request : requests) {
    RC_ASSERT(request.name.size() + request.arguments.size() <= 64U);
  }
}

TEST(ChannelAnswer, CarriesIdKindAndText) {
  EXPECT_EQ(encode_answer(0x01020304, HostToolAnswer::value("[1]")),
            std::string("\x08\0\0\0\x04\x03\x02\x01\0[1]", 12));
  EXPECT_EQ(encode_answer(1, HostToolAnswer::refused("no.")),
            std::string("\x0f\0\0\0\x01\0\0\0\1Error: no.", 19));
  EXPECT_EQ(encode_answer(1, HostToolAnswer::value("")).size(), kAnswerFramingBytes);
}

}  // namespace
}  // namespace casemate
