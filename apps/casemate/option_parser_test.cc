#include "apps/casemate/option_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kTable = std::to_array<OptionSpec>({
    {"--file", "NAME", Repeat::allowed, "", "", "--file a=b"},
    {"--timeout", "SECONDS", Repeat::refused, "", "", "--timeout 2"},
    {"--json", "", Repeat::refused, "", "", ""},
    {"-v", "", Repeat::refused, "", "", ""},
});

ParsedLine parse(const std::vector<const char*>& words) { return parse_line(words, kTable); }

std::string refusal(const std::vector<const char*>& words) {
  try {
    parse(words);
  } catch (const InvalidArgument& refused) {
    return refused.message() + "; " + refused.hint();
  }
  return "nothing was refused";
}

TEST(OptionParser, RefusesAnUnknownOptionWithTheNearestOne) {
  EXPECT_THAT(refusal({"--timeuot", "2"}),
              HasSubstr("unknown option '--timeuot'; the nearest is --timeout"));
  EXPECT_THAT(refusal({"--timeuot=2"}), HasSubstr("the nearest is --timeout"));
  EXPECT_THAT(refusal({"--jso"}), HasSubstr("the nearest is --json"));
  EXPECT_THAT(refusal({"--hlep"}), HasSubstr("the nearest is --help"));
  EXPECT_THAT(refusal({"--"
                       "\x1b[2J"}),
              HasSubstr("'--\\x1b[2J'"));
  EXPECT_THAT(refusal({"-w"}), HasSubstr("unknown option '-w'; the nearest is -"));
  EXPECT_THAT(refusal({"-w"}), HasSubstr("; --help lists them"));
}

TEST(OptionParser, AnUnknownOptionBehindAnOperandMayBelongBehindTwoDashes) {
  const auto refused = [](const std::vector<const char*>& words) {
    try {
      parse_line(words, kTable, "the command stands");
    } catch (const InvalidArgument& refusal) {
      return refusal.hint();
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refused({"wc", "-l"}), HasSubstr("; the command stands behind --"));
  EXPECT_EQ(refused({"wc", "--jsn"}), "the nearest is --json; the command stands behind --");
  EXPECT_THAT(refused({"-l"}), HasSubstr("; --help lists them"));
  EXPECT_EQ(refused({"--", "wc", "-l"}), "nothing was refused");
}

TEST(OptionParser, RefusesASingleValuedOptionGivenTwice) {
  EXPECT_THAT(refusal({"--timeout", "1", "--timeout=1"}), HasSubstr("--timeout is given twice"));
}

TEST(OptionParser, RefusesAMissingValueAndAValueForAFlag) {
  EXPECT_THAT(refusal({"--timeout"}), HasSubstr("--timeout needs a value"));
  EXPECT_THAT(refusal({"--json=yes"}), HasSubstr("--json takes no value"));
}

TEST(OptionParser, ReadsBothFormsOfAValue) {
  EXPECT_EQ(parse({"--timeout", "2"}).value_or("--timeout", "9"), "2");
  EXPECT_EQ(parse({"--timeout=2"}).value_or("--timeout", "9"), "2");
  EXPECT_EQ(parse({}).value_or("--timeout", "9"), "9");
}

// CLI-04: nothing is split, swallowed or re-read.
TEST(OptionParser, TakesValuesByteForByte) {
  EXPECT_THAT(parse({"--file", "-x", "--file=", "--file", "", "--file=a=b=c", "--file", "[a,b]",
                     "--file", "--json", "--file", "--", "\xff"})
                  .values("--file"),
              ElementsAre("-x", "", "", "a=b=c", "[a,b]", "--json", "--"));
}

TEST(OptionParser, EndsOptionsAtTwoDashes) {
  const ParsedLine line = parse({"-", "--json", "--", "-prog.py", "--", "--json", "[a,b]", ""});
  EXPECT_TRUE(line.has("--json"));
  EXPECT_THAT(line.operands, ElementsAre("-"));
  EXPECT_THAT(line.trailing, ElementsAre("-prog.py", "--", "--json", "[a,b]", ""));
}

TEST(OptionParser, AllowsFlagsTwiceAndTakesHelpAnywhereButInAValue) {
  EXPECT_TRUE(parse({"-v", "-v", "--help"}).has("--help"));
  EXPECT_TRUE(parse({"-h"}).has("--help"));
  EXPECT_FALSE(parse({"--file", "--help"}).has("--help"));
  EXPECT_FALSE(parse({"--", "--help"}).has("--help"));
}

TEST(OptionParser, KnowsThatAFlagWasAskedForInALineThatDoesNotFit) {
  const auto asks = [](const std::vector<const char*>& words) {
    return asks_for("--json", words, kTable);
  };
  EXPECT_TRUE(asks({"--nonsense", "--json"}));
  EXPECT_FALSE(asks({"--nonsense", "--file", "--json"}));
  EXPECT_FALSE(asks({"--", "--json"}));
  EXPECT_FALSE(asks({"--file"}));
  const std::vector<const char*> words = {"--json"};
  EXPECT_FALSE(asks_for("--json", words, std::span(kTable).first(2))) << "it is no option there";
}

TEST(Nearest, IsNamedAndWhatThereIsBesideOneThatIsNotNear) {
  const std::array<std::string_view, 3> names = {"linux", "docker", "microvm"};
  EXPECT_EQ(nearest_or("linus", names, "none"), "the nearest is linux");
  EXPECT_EQ(nearest_or("lxc", names, "others"), "the nearest is linux; others");
  EXPECT_EQ(nearest_or("lxc", {}, "others"), "others");
  EXPECT_EQ(nearest_of("dcoker", names), "the nearest is docker, of: linux, docker, microvm");
  EXPECT_EQ(nearest_of("lxc", names), "the nearest is linux, of: linux, docker, microvm");
}

TEST(OneOf, NamesOptionTextNearestAndAll) {
  const std::array<std::string_view, 2> names = {"linux", "docker"};
  EXPECT_EQ(one_of("--backend", "docker", names), "docker");
  try {
    one_of("--backend", "Linux", names);
    FAIL();
  } catch (const InvalidArgument& refused) {
    EXPECT_EQ(refused.message(), "--backend does not know 'Linux'");
    EXPECT_EQ(refused.hint(), "the nearest is linux, of: linux, docker");
  }
}

}  // namespace
}  // namespace casemate::app
