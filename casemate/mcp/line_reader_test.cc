#include "casemate/mcp/line_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace casemate::mcp {
namespace {

std::vector<std::string> lines_of(LineReader& reader) {
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.push_back(line->too_long ? "TOO LONG" : line->text);
  return lines;
}

using Lines = std::vector<std::string>;

// MCP-12
TEST(LineReader, PassesOverALineThatIsTooLongAndGoesOnBehindIt) {
  LineReader reader(4);
  reader.feed("1234\n12345\n\nab\r\n");
  EXPECT_EQ(lines_of(reader), (Lines{"1234", "TOO LONG", "", "ab\r"}));
  for (int piece = 0; piece < 1000; ++piece) {
    reader.feed("xxxxx");
    EXPECT_EQ(lines_of(reader), Lines{});
  }
  reader.feed("x\nnext\nrest");
  EXPECT_EQ(lines_of(reader), (Lines{"TOO LONG", "next"}));
  EXPECT_EQ(reader.rest()->text, "rest");
  EXPECT_FALSE(reader.rest());
}

TEST(LineReader, KnowsThatTheLastLineWasTooLong) {
  LineReader reader(4);
  reader.feed("12345");
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.rest()->too_long);
}

// However a stream is cut, its lines are the same.
RC_GTEST_PROP(LineReader, ReadsTheSameLinesFromAnyPieces, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', '\n'));
  LineReader whole(3);
  whole.feed(text);
  const Lines expected = lines_of(whole);
  LineReader pieces(3);
  Lines lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto length = *rc::gen::inRange<std::size_t>(1, 6);
    pieces.feed(std::string_view(text).substr(at, length));
    at += length;
    for (std::string& line : lines_of(pieces)) lines.push_back(std::move(line));
  }
  RC_ASSERT(lines == expected);
  const auto one = whole.rest();
  const auto other = pieces.rest();
  RC_ASSERT(one.has_value() == other.has_value());
  if (one) RC_ASSERT(one->text == other->text);
  if (one) RC_ASSERT(one->too_long == other->too_long);
}

}  // namespace
}  // namespace casemate::mcp
