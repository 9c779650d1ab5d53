#include "casemate/base/log.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace casemate {
namespace {

TEST(Log, AnEmptyFunctionDiscards) { write_log({}, LogLevel::error, "nobody listens"); }

TEST(Log, PassesLevelAndText) {
  std::string seen;
  const Log log = [&](LogLevel level, std::string_view text) {
    seen = std::string(to_string(level)) + ": " + std::string(text);
  };
  write_log(log, LogLevel::warning, "w");
  EXPECT_EQ(seen, "warning: w");
}

TEST(Log, WhatIsLoggedIsOneLineThatNoTerminalActsOn) {
  std::string seen;
  write_log([&](LogLevel, std::string_view text) { seen = text; }, LogLevel::info,
            "a\x1b[2J\nb\xff\u202E\u2029\u0085\\n");
  EXPECT_EQ(seen, "a\\x1b[2J b\uFFFD\\u{202e}\\u{2029}\\u{0085}\\n");
}

TEST(Log, WhatALogThrowsIsContained) {
  const Log log = [](LogLevel, std::string_view) { throw std::runtime_error("disk full"); };
  EXPECT_NO_THROW(write_log(log, LogLevel::info, "x"));
}

TEST(Log, LevelsHaveNames) {
  EXPECT_EQ(to_string(LogLevel::debug), "debug");
  EXPECT_EQ(to_string(LogLevel::info), "info");
  EXPECT_EQ(to_string(LogLevel::error), "error");
}

}  // namespace
}  // namespace casemate
