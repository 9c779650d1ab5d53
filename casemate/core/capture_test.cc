#include "casemate/core/capture.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "casemate/base/utf8.h"

namespace casemate {
namespace {

using namespace std::string_literals;

CapturedStream capture(std::uint64_t cap, std::string_view bytes) {
  StreamCapture stream(cap);
  stream.append(bytes);
  return stream.take();
}

// OUT-09
TEST(StreamCapture, WhatFitsIsKeptWholeAndOneByteMoreIsNot) {
  EXPECT_EQ(capture(6, "abcdef"), (CapturedStream{.bytes = "abcdef"}));
  EXPECT_EQ(capture(6, "abcdefg"),
            (CapturedStream{.bytes = "abcefg", .missing_bytes = 1, .cut_at = 3}));
}

// OUT-03
TEST(StreamCapture, KeepsTheHeadAndTheTail) {
  const CapturedStream captured = capture(8, "HEAD" + std::string(1000, '.') + "TAIL");
  EXPECT_EQ(captured.bytes, "HEADTAIL");
  EXPECT_EQ(captured.missing_bytes, 1000U);
  EXPECT_EQ(captured.cut_at, 4U);
}

TEST(StreamCapture, AnOddByteGoesToTheHead) {
  EXPECT_EQ(capture(5, "abcdefg").bytes, "abcfg");
  EXPECT_EQ(capture(1, "abc"), (CapturedStream{.bytes = "a", .missing_bytes = 2, .cut_at = 1}));
}

TEST(StreamCapture, ACapOfZeroCountsEverything) {
  EXPECT_EQ(capture(0, "abc"), (CapturedStream{.missing_bytes = 3}));
  EXPECT_EQ(capture(0, ""), CapturedStream{});
}

TEST(StreamCapture, ACapBeyondAllMemoryIsFine) {
  EXPECT_EQ(capture(UINT64_MAX, "abc").bytes, "abc");
}

TEST(StreamCapture, StartsAnewAfterTake) {
  StreamCapture stream(4);
  stream.append("abcdefgh"s);
  stream.take();
  stream.append("xy"s);
  EXPECT_EQ(stream.take(), (CapturedStream{.bytes = "xy"}));
}

// OUT-07: the cap falls at every place inside a character, in the head and in the tail.
TEST(StreamCapture, CutsBetweenCharactersAndCountsWhatThatCosts) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "\U0001F600";
  }
  for (std::uint64_t cap = 20; cap < 36; ++cap) {
    const CapturedStream captured = capture(cap, text);
    EXPECT_TRUE(is_valid_utf8(captured.bytes)) << cap;
    EXPECT_LE(captured.bytes.size(), cap);
    EXPECT_GE(captured.bytes.size(), cap - 6);
    EXPECT_EQ(captured.bytes.size() + captured.missing_bytes, text.size()) << cap;
    EXPECT_EQ(captured.cut_at % 4, 0U);
  }
}

TEST(StreamCapture, BytesThatAreNoTextAreNotTrimmed) {
  EXPECT_EQ(capture(8, std::string(100, '\xBF')).bytes, std::string(8, '\xBF'));
  EXPECT_EQ(capture(8, std::string(100, '\xFF')).bytes, std::string(8, '\xFF'));
}

struct Fed {
  std::string all;
  CapturedStream captured;
};

// Feeds a random stream in random pieces; text and noise, small against the cap and large.
Fed feed_randomly(std::uint64_t cap, bool text) {
  const auto pieces =
      text ? *rc::gen::container<std::vector<std::string>>(rc::gen::container<std::string>(
                 rc::gen::elementOf("\xE2\x82\xAC\xF0\x9F\x98\x80 a"s)))
           : *rc::gen::container<std::vector<std::string>>(rc::gen::arbitrary<std::string>());
  Fed fed;
  StreamCapture stream(cap);
  for (const std::string& piece : pieces) {
    fed.all += piece;
    stream.append(piece);
  }
  fed.captured = stream.take();
  return fed;
}

RC_GTEST_PROP(StreamCapture, KeptAndMissingAreWhatWasFed, ()) {
  const auto cap = *rc::gen::inRange<std::uint64_t>(0, 64);
  const Fed fed = feed_randomly(cap, *rc::gen::arbitrary<bool>());
  const std::string& bytes = fed.captured.bytes;
  RC_ASSERT(bytes.size() <= cap);
  RC_ASSERT(bytes.size() + fed.captured.missing_bytes == fed.all.size());
  RC_ASSERT(bytes.size() == fed.all.size() || bytes.size() + 6 >= cap);
  const std::string head = bytes.substr(0, fed.captured.cut_at);
  const std::string tail = bytes.substr(fed.captured.cut_at);
  RC_ASSERT(fed.all.starts_with(head));
  RC_ASSERT(fed.all.ends_with(tail));
}

// Euro signs in pieces of random length: what is kept is text again.
RC_GTEST_PROP(StreamCapture, TextStaysTextWhateverThePieces, ()) {
  const auto cap = *rc::gen::inRange<std::uint64_t>(0, 64);
  std::string text;
  for (auto count = *rc::gen::inRange(0, 200); count > 0; --count) {
    text += *rc::gen::elementOf(std::vector<std::string>{"a", "\u00E9", "\u20AC", "\U0001F600"});
  }
  StreamCapture stream(cap);
  for (std::string_view rest = text; !rest.empty();) {
    const auto length = *rc::gen::inRange<std::size_t>(1, rest.size() + 1);
    stream.append(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  const CapturedStream captured = stream.take();
  RC_ASSERT(is_valid_utf8(captured.bytes));
  RC_ASSERT(captured.bytes.size() + captured.missing_bytes == text.size());
}

TEST(RenderStream, SaysHowManyBytesAreMissingOnALineOfItsOwn) {
  EXPECT_EQ(render_stream({.bytes = "ab"}), "ab");
  EXPECT_EQ(render_stream({.bytes = "headtail", .missing_bytes = 7, .cut_at = 4}),
            "head\n[... 7 bytes missing ...]\ntail");
  EXPECT_EQ(render_stream({.bytes = "head\ntail", .missing_bytes = 7, .cut_at = 5}),
            "head\n[... 7 bytes missing ...]\ntail");
  EXPECT_EQ(render_stream({.missing_bytes = 7}), "[... 7 bytes missing ...]\n");
}

// What `render_stream` writes of the stream itself.
std::size_t rendered_size(const CapturedStream& captured) {
  const std::string_view bytes = captured.bytes;
  if (captured.missing_bytes == 0) return replace_invalid_utf8(bytes).size();
  return replace_invalid_utf8(bytes.substr(0, captured.cut_at)).size() +
         replace_invalid_utf8(bytes.substr(captured.cut_at)).size();
}

TEST(FitRendering, LeavesWhatFitsAsItIs) {
  for (const CapturedStream& stream :
       {CapturedStream{"0123456789"}, CapturedStream{"\xff\xff\xff."},
        CapturedStream{"head\xfftail", 7, 5}, CapturedStream{"headtail\xff", 7, 0}}) {
    const std::size_t size = rendered_size(stream);
    EXPECT_EQ(fit_rendering(stream, size), stream);
    EXPECT_NE(fit_rendering(stream, size - 1), stream);
  }
}

// OUT-07: a byte that is no text is three bytes as U+FFFD.
TEST(FitRendering, CutsWhatReplacingMadeTooLong) {
  const CapturedStream fitted = fit_rendering({std::string(300, '\xff')}, 100);
  EXPECT_EQ(fitted, (CapturedStream{std::string(32, '\xff'), 268, 16}));
  const CapturedStream cut_before =
      fit_rendering({"abc" + std::string(20, '\xfe') + "xyz", 1000, 13}, 20);
  EXPECT_EQ(cut_before, (CapturedStream{"abc\xfe\xfe\xfe\xfexyz", 1016, 5}));
}

// OUT-07
RC_GTEST_PROP(FitRendering, FitsBetweenCharactersAndCountsWhatItTook, ()) {
  std::string all;
  for (auto count = *rc::gen::inRange(0, 200); count > 0; --count) {
    all += *rc::gen::elementOf(std::vector<std::string>{"a", "\u20AC", "\U0001F600", "\xff",
                                                        "\xe2\x82", "\x80", "\xf0\x9f"});
  }
  const auto cap = *rc::gen::inRange<std::uint64_t>(0, 300);
  StreamCapture stream(*rc::gen::inRange<std::uint64_t>(0, 300));
  stream.append(all);
  const CapturedStream captured = stream.take();
  const CapturedStream fitted = fit_rendering(captured, cap);
  RC_ASSERT(rendered_size(fitted) <= cap);
  RC_ASSERT(fitted.bytes.size() + fitted.missing_bytes == all.size());
  if (fitted == captured) return;
  // No more is taken than has to be, and no character is cut.
  RC_ASSERT(rendered_size(fitted) + 2 * 3 >=
            std::min<std::uint64_t>(cap, rendered_size(captured) / 2));
  const std::string whole = replace_invalid_utf8(captured.bytes.substr(
      0, captured.missing_bytes == 0 ? captured.bytes.size() : captured.cut_at));
  RC_ASSERT(whole.starts_with(replace_invalid_utf8(fitted.bytes.substr(0, fitted.cut_at))));
}

TEST(RenderStream, IsValidTextWhateverTheBytes) {
  EXPECT_EQ(render_stream({.bytes = "\xFF|\xFE", .missing_bytes = 1, .cut_at = 2}),
            "\uFFFD|\n[... 1 bytes missing ...]\n\uFFFD");
  // A cut from a foreign source that lies beyond the bytes.
  EXPECT_EQ(render_stream({.bytes = "ab", .missing_bytes = 1, .cut_at = 99}),
            "ab\n[... 1 bytes missing ...]\n");
}

}  // namespace
}  // namespace casemate
