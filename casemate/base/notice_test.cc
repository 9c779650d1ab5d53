#include "casemate/base/notice.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace casemate {
namespace {

struct Seen {
  std::vector<std::string> codes;
  std::vector<unsigned> lines;
};

Notices::Hook record(Seen& seen) {
  return [&seen](std::string_view code, std::string_view, const std::source_location& where) {
    seen.codes.emplace_back(code);
    seen.lines.push_back(where.line());
  };
}

TEST(Notices, WithoutAHookNothingHappens) {
  Notices().notify("experimental", "text");
  Notices(Notices::Hook()).notify("experimental", "text");
}

TEST(Notices, ASuppressedCodeIsNeverDelivered) {
  Seen seen;
  const Notices notices(record(seen), {"host_tools"});
  notices.notify("host_tools", "text");
  notices.notify("experimental", "text");
  EXPECT_EQ(seen.codes, std::vector<std::string>{"experimental"});
}

TEST(Notices, EachCodeComesOnceAHookAlsoThroughCopies) {
  Seen seen;
  const Notices notices(record(seen));
  const Notices copy = notices;
  notices.notify("experimental", "text");
  copy.notify("experimental", "text");
  copy.notify("host_tools", "text");
  EXPECT_EQ(seen.codes, (std::vector<std::string>{"experimental", "host_tools"}));

  Seen other;
  Notices(record(other)).notify("experimental", "text");
  EXPECT_EQ(other.codes.size(), 1U);
}

TEST(Notices, CarriesThePlaceOfTheCaller) {
  Seen seen;
  const Notices notices(record(seen));
  const unsigned line = std::source_location::current().line() + 1;
  notices.notify("experimental", "text");
  EXPECT_EQ(seen.lines, std::vector<unsigned>{line});
}

TEST(Notices, WhatAHookThrowsIsContainedAndItMayNotifyInTurn) {
  int calls = 0;
  const Notices* self = nullptr;
  const Notices notices([&](std::string_view code, std::string_view, const std::source_location&) {
    ++calls;
    if (code == "experimental") {
      self->notify("host_tools", "from the hook");
    }
    throw std::runtime_error("refused");
  });
  self = &notices;
  notices.notify("experimental", "text");
  EXPECT_EQ(calls, 2);
}

TEST(Notices, ThreadsThatNotifyAtOnceDeliverOnce) {
  Seen seen;
  const Notices notices(record(seen));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] { notices.notify("experimental", "text"); });
    }
  }
  EXPECT_EQ(seen.codes.size(), 1U);
}

}  // namespace
}  // namespace casemate
