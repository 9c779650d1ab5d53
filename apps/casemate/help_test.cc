#include "apps/casemate/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "apps/casemate/verbs.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Help, ShowsEveryOptionWithItsDefaultAndAnExampleOfItself) {
  const std::string text = verb_help(kRunVerb);
  for (const OptionSpec& option : kRunVerb.options) {
    EXPECT_FALSE(option.fallback.empty()) << option.name;
    EXPECT_THAT(std::string(option.example), HasSubstr(std::string(option.name)));
    EXPECT_THAT(text, HasSubstr("\n  " + std::string(option.name)));
    EXPECT_THAT(text, HasSubstr("default: " + std::string(option.fallback) +
                                "; example: " + std::string(option.example) + "\n"));
  }
}

TEST(Help, SaysWhichOptionsMayBeRepeated) {
  const std::string text = verb_help(kRunVerb);
  EXPECT_THAT(text, HasSubstr("land it; repeatable\n"));
  EXPECT_THAT(text, Not(HasSubstr("may replace files; repeatable")));
}

TEST(Help, OverviewNamesTheVerbs) {
  constexpr std::array<const VerbSpec*, 1> kVerbs = {&kRunVerb};
  EXPECT_THAT(overview(kVerbs), HasSubstr("  run         run one Python program in a sandbox\n"));
}

}  // namespace
}  // namespace casemate::app
