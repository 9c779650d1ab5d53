#include "casemate/base/utf8.h"

#include <gtest/gtest.h>
#include <locale.h>
#include <rapidcheck/gtest.h>

#include <stdexcept>

#include "casemate/base/one_line.h"

namespace casemate {
namespace {

using namespace std::string_literals;

constexpr std::string_view kBad = "\xEF\xBF\xBD";  // U+FFFD

std::string bad(int times) {
  std::string text;
  for (int i = 0; i < times; ++i) {
    text += kBad;
  }
  return text;
}

// Bytes that meet each other badly: leads, continuations and the edges of their ranges.
rc::Gen<std::string> hostile_bytes() {
  return rc::gen::container<std::string>(rc::gen::weightedOneOf<char>(
      {{3, rc::gen::elementOf("\xC2\xDF\xE0\xE2\xED\xEF\xF0\xF4\xF5\x80\x82\x9F\xA0\xAC\xBF"s)},
       {1, rc::gen::arbitrary<char>()}}));
}

TEST(Utf8, AcceptsTheEdgesOfEachLength) {
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8("\x7F\0 z"s));
  EXPECT_TRUE(is_valid_utf8("\xC2\x80 \xDF\xBF"));
  EXPECT_TRUE(is_valid_utf8("\xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF"));
  EXPECT_TRUE(is_valid_utf8("\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"));
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndWhatIsAboveTheLastCodePoint) {
  for (const char* text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                           "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80",
                           "\xFF", "\xC2", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << escape_for_display(text);
  }
}

TEST(Utf8, ReplacesEachMaximalInvalidPartOnce) {
  // The standard's own examples, tables 3-8 to 3-11.
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), bad(8) + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), bad(8) + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            bad(5) + "A" + bad(2) + "B");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), bad(4) + "A");
  EXPECT_EQ(replace_invalid_utf8("a\0b"s), "a\0b"s);
}

RC_GTEST_PROP(Utf8, WhatWasReplacedIsValid, ()) {
  const std::string bytes = *hostile_bytes();
  const std::string text = replace_invalid_utf8(bytes);
  RC_ASSERT(is_valid_utf8(text));
  RC_ASSERT(is_valid_utf8(bytes) == (text == bytes));
}

// OUT-01
RC_GTEST_PROP(Utf8, AnySplitOfAStreamDecodesToTheSameText, ()) {
  const std::string bytes = *hostile_bytes();
  Utf8Decoder decoder;
  std::string text;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto length = *rc::gen::inRange<std::size_t>(1, rest.size() + 1);
    text += decoder.feed(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  text += decoder.finish();
  RC_ASSERT(text == replace_invalid_utf8(bytes));
}

TEST(Utf8, ADecoderGivesACharacterAsSoonAsItIsWholeAndStartsAnewAfterFinish) {
  Utf8Decoder decoder;
  EXPECT_EQ(decoder.feed("a\xE2"), "a");
  EXPECT_EQ(decoder.feed("\x82"), "");
  EXPECT_EQ(decoder.feed("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(decoder.feed("\xF0\x9F"), "");
  EXPECT_EQ(decoder.finish(), kBad);
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.feed("\x98"), kBad);
}

TEST(Utf8, AByteThatCanBelongToNoCharacterIsGivenAtOnce) {
  Utf8Decoder decoder;
  EXPECT_EQ(decoder.feed("\xFF"), kBad);
  EXPECT_EQ(decoder.feed("\xE0\x80"), bad(2));
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Utf8, ABoundaryNeverLiesInsideACharacter) {
  const std::string text = "a\xF0\x9F\x98\x80z";
  EXPECT_EQ(character_boundary_before(text, 0), 0U);
  EXPECT_EQ(character_boundary_before(text, 1), 1U);
  EXPECT_EQ(character_boundary_before(text, 2), 1U);
  EXPECT_EQ(character_boundary_before(text, 4), 1U);
  EXPECT_EQ(character_boundary_before(text, 5), 5U);
  EXPECT_EQ(character_boundary_before(text, 6), 6U);
  EXPECT_EQ(character_boundary_before(text, 99), 6U);
}

TEST(Utf8, ABoundaryOnInvalidBytesStays) {
  EXPECT_EQ(character_boundary_before("\x80\x80\x80\x80\x80", 4), 4U);
  EXPECT_EQ(character_boundary_before("\xF0\x9F!", 1), 1U);
  EXPECT_EQ(character_boundary_before("\xE2\x82\xAC\x80", 3), 3U);
}

TEST(Utf8, AnIncompleteSuffixIsAWellBegunCharacterOnly) {
  EXPECT_EQ(incomplete_suffix_length(""), 0U);
  EXPECT_EQ(incomplete_suffix_length("abc"), 0U);
  EXPECT_EQ(incomplete_suffix_length("a\xC2"), 1U);
  EXPECT_EQ(incomplete_suffix_length("a\xE2\x82"), 2U);
  EXPECT_EQ(incomplete_suffix_length("a\xF0\x9F\x98"), 3U);
  EXPECT_EQ(incomplete_suffix_length("\xE2\x82\xAC"), 0U);
  EXPECT_EQ(incomplete_suffix_length("\xE0\x80"), 0U);
  EXPECT_EQ(incomplete_suffix_length("\x80\x80\x80"), 0U);
}

TEST(Utf8, EncodesAndDecodesCodePoints) {
  EXPECT_EQ(decode_utf8("a\xE2\x82\xAC\xF0\x9F\x98\x80"), U"a\u20AC\U0001F600");
  EXPECT_EQ(decode_utf8("\xFF"), U"\uFFFD");
  EXPECT_EQ(encode_utf8(U'\U0010FFFF'), "\xF4\x8F\xBF\xBF");
  EXPECT_EQ(encode_utf8(U'\0'), "\0"s);
  EXPECT_EQ(encode_utf8(static_cast<char32_t>(0xD800)), kBad);
  EXPECT_EQ(encode_utf8(static_cast<char32_t>(0x110000)), kBad);
}

TEST(Utf8, NormalisingInvalidTextIsRefused) {
  EXPECT_THROW(normalise_nfc("\xFF"), std::invalid_argument);
  EXPECT_THROW(lower_case("\xED\xA0\x80"), std::invalid_argument);
}

TEST(Utf8, NormalisesToComposedForm) {
  EXPECT_EQ(normalise_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(normalise_nfc("\u212A"), "K");
  EXPECT_EQ(normalise_nfc(""), "");
  EXPECT_EQ(normalise_nfc("a\0b"s), "a\0b"s);
  EXPECT_EQ(normalise_nfc("\u1100\u1161"), "\uAC00");
}

// NM-02
TEST(Utf8, LowersCaseTheSameUnderEveryLocale) {
  EXPECT_EQ(lower_case("A.TXT \u00C4 \u0416"), "a.txt \u00E4 \u0436");
  EXPECT_EQ(lower_case("\u212A"), "k");
  EXPECT_EQ(lower_case("\u0130"), "i\u0307");
  EXPECT_NE(lower_case("stra\u00DFe"), lower_case("STRASSE"));
  // Where the machine has a Turkish locale, "I" must still become "i".
  const std::string before = setlocale(LC_ALL, nullptr);
  setlocale(LC_ALL, "tr_TR.UTF-8");
  EXPECT_EQ(lower_case("FILE"), "file");
  setlocale(LC_ALL, before.c_str());
}

// NM-04
TEST(Utf8, ShowsWhatATerminalWouldAct) {
  EXPECT_EQ(escape_for_display("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(escape_for_display("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(escape_for_display("\0"s), "\\x00");
  EXPECT_EQ(escape_for_display("\u0085"), "\\u{0085}");
  EXPECT_EQ(escape_for_display("a\u202Etxt.exe"), "a\\u{202e}txt.exe");
  EXPECT_EQ(escape_for_display("a\u200Bb\u2028\u2069\uFEFF"),
            "a\\u{200b}b\\u{2028}\\u{2069}\\u{feff}");
  EXPECT_EQ(escape_for_display("\U000E0041"), "\\u{e0041}");
  EXPECT_EQ(escape_for_display("C:\\x1b"), "C:\\\\x1b");
  EXPECT_EQ(escape_for_display("\xFF\xE2\x82z"), "\\xff\\xe2\\x82z");
  EXPECT_EQ(escape_for_display("caf\u00E9 \u2615"), "caf\u00E9 \u2615");
}

TEST(Utf8, DisplayIsCutBetweenCharacters) {
  EXPECT_EQ(escape_for_display("abcd", 4), "abcd");
  EXPECT_EQ(escape_for_display("abcde", 4), "abcd...");
  EXPECT_EQ(escape_for_display("abc\u20AC", 5), "abc...");
  EXPECT_EQ(escape_for_display("abc\n", 4), "abc...");
  EXPECT_EQ(escape_for_display(std::string(401, 'x')), std::string(400, 'x') + "...");
}

TEST(Utf8, ASentenceIsOneLineThatNoTerminalActsOn) {
  EXPECT_EQ(one_line("first\nsecond\r\nthird"), "first second  third");
  EXPECT_EQ(one_line("\x1b]0;title\x07\x7f\t\0"s), "\\x1b]0;title\\x07\\x7f\\t\\x00");
  EXPECT_EQ(one_line("\u0085\u009B2J"), "\\u{0085}\\u{009b}2J");
  EXPECT_EQ(one_line("a\u2028b\u2029c"), "a\\u{2028}b\\u{2029}c");
  EXPECT_EQ(one_line("\u202Ecod\u202C \u2066x\u2069\u200F"),
            "\\u{202e}cod\\u{202c} \\u{2066}x\\u{2069}\\u{200f}");
  EXPECT_EQ(one_line("\xFF caf\u00E9"), "\uFFFD caf\u00E9");
  EXPECT_EQ(one_line(std::string(10'000, 'x')), std::string(10'000, 'x'));
}

RC_GTEST_PROP(Utf8, ASentenceThatIsEscapedIsNotEscapedAgain, ()) {
  const std::string bytes = *hostile_bytes();
  const std::string line = one_line(bytes);
  RC_ASSERT(is_valid_utf8(line));
  RC_ASSERT(line.find_first_of("\n\r\t\x1b\x7f") == std::string::npos);
  RC_ASSERT(one_line(line) == line);
  RC_ASSERT(one_line(escape_for_display(bytes)) == escape_for_display(bytes));
}

RC_GTEST_PROP(Utf8, WhatIsDisplayedIsValidAndOfOneLine, ()) {
  const std::string shown = escape_for_display(*hostile_bytes());
  RC_ASSERT(is_valid_utf8(shown));
  RC_ASSERT(shown.find_first_of("\n\r\t\x1b\x7f") == std::string::npos);
}

}  // namespace
}  // namespace casemate
