#include "casemate/host_tools/over_exec_guest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using std::chrono::nanoseconds;

TEST(OverExecModule, NamesToolsAsTextThatPythonCannotTakeForCode) {
  const std::string text =
      over_exec_module({.names = {"a", "\"]; import evil #", "back\\slash\n"}, .max_calls = 16});
  EXPECT_NE(text.find(R"(_NAMES = ["a","\"]; import evil #","back\\slash\n"])"), std::string::npos)
      << text.substr(0, 300);
  EXPECT_NE(text.find("\n_LIMIT = 16 + 1\n_TIMEOUT = 300\n"), std::string::npos);
}

TEST(OverExecModule, RefusesATimeoutThatIsNotAboveNothing) {
  for (const nanoseconds timeout : {nanoseconds(0), nanoseconds(-1)}) {
    expect_refusal<InvalidArgument>([&] { over_exec_module({.call_timeout = timeout}); },
                                    "call_timeout");
  }
  EXPECT_NO_THROW(over_exec_module({.call_timeout = nanoseconds(1)}));
}

TEST(OverExecModule, IsAsLargeAsTheRouterCountsAndNotLarger) {
  const std::size_t fixed = over_exec_module({.names = {""}}).size();
  const std::size_t room = kHostToolModuleBytes - fixed;
  EXPECT_EQ(over_exec_module({.names = {std::string(room, 'x')}}).size(), kHostToolModuleBytes);
  expect_refusal<InvalidArgument>(
      [&] { over_exec_module({.names = {std::string(room + 1, 'x')}}); }, "it may have 16384");
}

TEST(OverExecLauncher, IsAsLargeAsTheRouterCountsAndNotLarger) {
  const GuestRunLayout layout = guest_run_layout("/run/x");
  const std::size_t fixed = over_exec_launcher(layout, "i").size();
  const std::size_t room = kHostToolLauncherBytes - fixed + 1;
  EXPECT_EQ(over_exec_launcher(layout, std::string(room, 'i')).size(), kHostToolLauncherBytes);
  expect_refusal<InvalidArgument>([&] { over_exec_launcher(layout, std::string(room + 1, 'i')); },
                                  "it may have 4096");
}

TEST(OverExecLauncher, QuotesEverythingThatItIsTold) {
  const std::string text =
      over_exec_launcher(guest_run_layout("/run/it's; $(x)", "a b.py"), "/opt/python 3");
  EXPECT_NE(
      text.find(
          R"(set -- '/run/it'\''s; $(x)' '/opt/python 3' '/run/it'\''s; $(x)/host_tools/a b.py' "$@")"),
      std::string::npos)
      << text.substr(0, 200);
}

TEST(OverExecLauncher, RefusesAnInterpreterThatIsNoWord) {
  const GuestRunLayout layout = guest_run_layout("/run/x");
  expect_refusal<InvalidArgument>([&] { over_exec_launcher(layout, ""); }, "interpreter");
  expect_refusal<InvalidArgument>([&] { over_exec_launcher(layout, std::string("a\0b", 3)); },
                                  "interpreter");
}

}  // namespace
}  // namespace casemate
