#include "casemate/core/vocabulary.h"

#include <gtest/gtest.h>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

// Every spelling in the order of the values, and both directions of it. The words are fixed: they
// stand in scripts, JSON and labels of other people's sandboxes.
template <typename Enum>
void expect_spellings(Enum (*parse)(std::string_view),
                      const std::vector<std::string_view>& spellings) {
  for (std::size_t index = 0; index < spellings.size(); ++index) {
    const auto value = static_cast<Enum>(index);
    EXPECT_EQ(to_string(value), spellings[index]);
    EXPECT_EQ(parse(spellings[index]), value);
  }
  EXPECT_EQ(to_string(static_cast<Enum>(spellings.size())), "unknown");
  EXPECT_EQ(to_string(static_cast<Enum>(255)), "unknown");
  EXPECT_THROW(parse("unknown"), InvalidArgument);
  EXPECT_THROW(parse(""), InvalidArgument);
}

TEST(Vocabulary, RefusesAnUnknownWordAndNamesTheValidOnes) {
  expect_refusal<InvalidArgument>([] { parse_egress("open"); },
                                  {"'open'", "egress mode", "unrestricted, allowlist, closed"});
}

TEST(Vocabulary, LetterCaseMatters) {
  expect_refusal<InvalidArgument>([] { parse_isolation("MicroVM"); }, {"did you mean 'microvm'?"});
}

TEST(Vocabulary, SuggestsTheNearestSpelling) {
  expect_refusal<InvalidArgument>([] { parse_isolation("containr"); },
                                  {"did you mean 'container'?"});
  expect_refusal<InvalidArgument>([] { parse_isolation("hardened-container"); },
                                  {"did you mean 'hardened_container'?"});
  const std::string far =
      expect_refusal<InvalidArgument>([] { parse_isolation("kubernetes"); }, {"'kubernetes'"});
  EXPECT_EQ(far.find("did you mean"), std::string::npos);
}

TEST(Vocabulary, QuotesHostileTextEscapedAndCut) {
  const std::string text = expect_refusal<InvalidArgument>(
      [] { parse_capability("\x1b[2J\xFF" + std::string(100000, 'x')); }, {"\\x1b[2J\\xff", "..."});
  EXPECT_LT(text.size(), 400U);
}

TEST(Vocabulary, TheOlderNetworkCapabilityPointsToTheEgressMode) {
  expect_refusal<InvalidArgument>([] { parse_capability("network"); }, {"network", "egress mode"});
}

TEST(Vocabulary, NoneIsReadAsProcessAndWrittenAsProcess) {
  EXPECT_EQ(parse_isolation("none"), Isolation::process);
  EXPECT_EQ(to_string(parse_isolation("none")), "process");
}

TEST(Vocabulary, WireSpellingsAreTheGoldenOnes) {
  expect_spellings(parse_isolation, {"process", "runtime", "os_process", "container",
                                     "hardened_container", "microvm", "vm"});
  expect_spellings(parse_egress, {"unrestricted", "allowlist", "closed"});
  expect_spellings(parse_capability,
                   {"exec", "run_code", "host_tools", "files_in", "files_out", "files_list",
                    "files_delete", "snapshot", "attached_identity"});
  expect_spellings(parse_os_family, {"posix", "windows"});
  expect_spellings(parse_source_integrity, {"untrusted", "trusted"});
  expect_spellings(parse_identity, {"app", "user"});
  expect_spellings(parse_entry_kind, {"file", "directory", "symlink", "other"});
  expect_spellings(parse_output_disposition, {"land", "consume"});
  expect_spellings(parse_name_normalization, {"nfc", "none"});
  expect_spellings(parse_outcome,
                   {"exited", "signaled", "timed_out", "cancelled", "out_of_memory"});
  expect_spellings(parse_limit, {"memory", "pids", "disk", "cpu", "files", "time"});
  expect_spellings(parse_image_form, {"host", "dir", "oci", "docker_archive", "registry"});
  expect_spellings(parse_host_tool_transport, {"none", "channel", "files"});
}

TEST(Vocabulary, TheLadderIsWeakestFirst) {
  EXPECT_EQ(isolation_ladder(),
            (std::vector<std::string_view>{"process", "runtime", "os_process", "container",
                                           "hardened_container", "microvm", "vm"}));
}

TEST(Vocabulary, AFloorIsMetByItselfAndWhatIsStronger) {
  const std::size_t rungs = isolation_ladder().size();
  for (std::size_t declared = 0; declared < rungs; ++declared) {
    for (std::size_t floor = 0; floor < rungs; ++floor) {
      EXPECT_EQ(meets_floor(static_cast<Isolation>(declared), static_cast<Isolation>(floor)),
                declared >= floor);
    }
  }
}

TEST(Vocabulary, ARungFromOutsideTheLadderIsNeverRanked) {
  EXPECT_TRUE(is_known(Isolation::vm));
  const auto beyond = static_cast<Isolation>(7);
  EXPECT_FALSE(is_known(beyond));
  EXPECT_FALSE(meets_floor(beyond, Isolation::process));
  EXPECT_FALSE(meets_floor(Isolation::vm, beyond));
}

TEST(Vocabulary, NamesAreJoinedInWireOrder) {
  EXPECT_EQ(join_names(default_capabilities()), "exec, files_in");
  EXPECT_EQ(join_names(std::set<Egress>{Egress::closed, Egress::allowlist}), "allowlist, closed");
  EXPECT_EQ(join_names(std::set<Egress>{}), "nothing");
  EXPECT_EQ(join_names(std::set<Identity>{Identity::app}), "app");
  EXPECT_EQ(join_names(std::set<OsFamily>{OsFamily::posix}), "posix");
  EXPECT_EQ(join_names(std::set<Limit>{Limit::time, Limit::memory}), "memory, time");
  EXPECT_EQ(join_names(std::set<ImageForm>{ImageForm::registry}), "registry");
}

TEST(Vocabulary, TheNearestSpellingIsNoneWhenNothingIsNear) {
  const std::vector<std::string_view> valid{"--timeout", "--memory", "-v"};
  EXPECT_EQ(nearest_spelling("--timeuot", valid), "--timeout");
  EXPECT_EQ(nearest_spelling("--frobnicate", valid), std::nullopt);
  EXPECT_EQ(nearest_spelling("", valid), std::nullopt);
  EXPECT_EQ(nearest_spelling(std::string(65, '-'), valid), std::nullopt);
  EXPECT_EQ(nearest_spelling("x", {}), std::nullopt);
  EXPECT_EQ(nearest_spelling("-x", valid), std::nullopt) << "one letter is no slip of another";
}

TEST(Vocabulary, TheNearestSpellingIsOneByAThirdOfAWordAtMost) {
  const std::vector<std::string_view> valid{"oci", "linux", "docker", "microvm"};
  EXPECT_EQ(nearest_spelling("lniux", valid), "linux") << "a swap is one edit";
  EXPECT_EQ(nearest_spelling("lnixu", valid), std::nullopt);
  EXPECT_EQ(nearest_spelling("Docker", valid), "docker");
  EXPECT_EQ(nearest_spelling("mic", valid), "microvm") << "what is left off is one edit";
  EXPECT_EQ(nearest_spelling("mi", valid), std::nullopt);
  EXPECT_EQ(nearest_spelling("lxc", valid), std::nullopt);
}

}  // namespace
}  // namespace casemate
