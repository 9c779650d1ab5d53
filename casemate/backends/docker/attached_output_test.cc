#include "casemate/backends/docker/attached_output.h"

#include <gtest/gtest.h>

#include <string>

namespace casemate::docker {
namespace {

std::string piece(char stream, const std::string& text) {
  std::string bytes{stream,
                    0,
                    0,
                    0,
                    0,
                    0,
                    static_cast<char>(text.size() / 256),
                    static_cast<char>(text.size() % 256)};
  return bytes + text;
}

TEST(AttachedOutput, WhatIsNoPieceOfAStreamIsRefused) {
  for (const std::string& bytes : {std::string("garbage!"), std::string("\1\0\1\0\0\0\0\0", 8),
                                   std::string("\3\0\0\0\0\0\0\1x", 9), std::string(8, '\0')}) {
    std::string output;
    EXPECT_FALSE(AttachedOutput({}).receive(bytes, output));
    EXPECT_EQ(output, "");
  }
}

TEST(AttachedOutput, IsReadInPiecesOfAnySize) {
  const std::string long_text(300, 'x');
  const std::string bytes =
      piece(1, "one") + piece(2, "not this") + piece(1, "") + piece(1, long_text);
  for (const std::size_t step : {1U, 2U, 7U, 8U, 9U, 1000U}) {
    AttachedOutput attached({});
    std::string output;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      EXPECT_TRUE(attached.receive(std::string_view(bytes).substr(at, step), output));
    }
    EXPECT_EQ(output, "one" + long_text) << step;
  }
}

TEST(AttachedOutput, ErrorsGoToTheLogAndNoMoreThanAPageOfThem) {
  std::string told;
  AttachedOutput attached([&](LogLevel, std::string_view text) { told += text; });
  std::string output;
  EXPECT_TRUE(attached.receive(piece(2, "why\x1b"), output));
  EXPECT_NE(told.find("why\\x1b"), told.npos) << told;
  for (int i = 0; i < 100; ++i) attached.receive(piece(2, std::string(500, 'y')), output);
  EXPECT_LT(told.size(), 8000U);
  EXPECT_EQ(output, "");
}

}  // namespace
}  // namespace casemate::docker
