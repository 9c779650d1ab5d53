#include "casemate/transfer/artifact_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "casemate/base/utf8.h"
#include "tests/support/expect_refusal.h"

namespace casemate {
namespace {

using testing::HasSubstr;
using testing::Not;
using Rule = ArtifactNameRule;

std::optional<Rule> broken(std::string_view name) {
  const auto fault = artifact_name_fault(name);
  return fault ? std::optional(fault->rule) : std::nullopt;
}

TEST(ArtifactName, RefusesEachRuleByItsName) {
  EXPECT_EQ(broken(""), Rule::not_empty);
  EXPECT_EQ(broken("a\\b"), Rule::no_backslash);
  EXPECT_EQ(broken("..\\x"), Rule::no_backslash);
  EXPECT_EQ(broken("/a"), Rule::relative);
  EXPECT_EQ(broken("/"), Rule::relative);
  EXPECT_EQ(broken(".."), Rule::no_parent_segment);
  EXPECT_EQ(broken("a/.."), Rule::no_parent_segment);
  EXPECT_EQ(broken("../a"), Rule::no_parent_segment);
  EXPECT_EQ(broken("a/../b"), Rule::no_parent_segment);
  EXPECT_EQ(broken("."), Rule::no_empty_segment);
  EXPECT_EQ(broken("./a"), Rule::no_empty_segment);
  EXPECT_EQ(broken("a//b"), Rule::no_empty_segment);
  EXPECT_EQ(broken("a/"), Rule::no_empty_segment);
  EXPECT_EQ(broken("a/./b"), Rule::no_empty_segment);
  EXPECT_EQ(broken("a\xFF"), Rule::utf8);
  EXPECT_EQ(broken("\xED\xA0\x80"), Rule::utf8);  // a lone surrogate
  EXPECT_EQ(broken("\xC0\xAF"), Rule::utf8);      // an overlong slash
}

TEST(ArtifactName, TriesTheRulesInTheirOrder) {
  EXPECT_EQ(broken("/../a\\"), Rule::no_backslash);
  EXPECT_EQ(broken("/../a"), Rule::relative);
  EXPECT_EQ(broken("a//.."), Rule::no_parent_segment);
  EXPECT_EQ(broken("a//\n"), Rule::no_empty_segment);
  EXPECT_EQ(broken("\n\xFF"), Rule::no_control);
  EXPECT_EQ(broken("\u202A\xFF"), Rule::no_control);
  EXPECT_EQ(broken(std::string(300, '\xFF')), Rule::utf8);
}

TEST(ArtifactName, AllowsWhatOnlyAShellOrWindowsWouldMind) {
  for (const char* name :
       {"~/x", "a:b", " ", "..a", "a..", "...", "NUL.txt", "*", "?", "[a]", "-rf", "$HOME", "a b",
        "\u00e9", "\U0001F600", "a\u200b.txt", ".hidden", "a/b/c", "outputs.json"}) {
    EXPECT_EQ(broken(name), std::nullopt) << name;
  }
}

// NM-04
TEST(ArtifactName, RefusesEveryControlCharacterAndNoNeighbour) {
  for (char32_t character = 0; character < 0x3000; ++character) {
    if (character == '/' || character == '\\' || (character >= 0xD800 && character <= 0xDFFF)) {
      continue;
    }
    const bool control = character < 0x20 || (character >= 0x7F && character <= 0x9F) ||
                         (character >= 0x202A && character <= 0x202E) ||
                         (character >= 0x2066 && character <= 0x2069);
    EXPECT_EQ(broken("a" + encode_utf8(character) + "b"),
              control ? std::optional(Rule::no_control) : std::nullopt)
        << "U+" << std::hex << static_cast<unsigned>(character);
  }
}

// NM-04
TEST(ArtifactName, ListsTheControlCharactersAndShowsTheNameOnOneLine) {
  const auto fault = artifact_name_fault("a\n\u202Etxt\x1b[2J\x7f\u0085.exe\n");
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->message, HasSubstr("U+000A, U+001B, U+007F, U+0085, U+202E"));
  EXPECT_THAT(fault->message, Not(HasSubstr("\n")));
  EXPECT_THAT(fault->message, Not(HasSubstr("\x1b")));
  EXPECT_THAT(fault->message, Not(HasSubstr("\u202E")));
}

// NM-06
TEST(ArtifactName, CountsBytesAndNotCharacters) {
  EXPECT_EQ(broken(std::string(255, 'a')), std::nullopt);
  EXPECT_EQ(broken(std::string(256, 'a')), Rule::at_most_255_bytes);
  std::string faces;
  for (int i = 0; i < 63; ++i) {
    faces += "\U0001F600";
  }
  EXPECT_EQ(broken(faces + "abc"), std::nullopt);  // 255 bytes
  EXPECT_EQ(broken(faces + "abcd"), Rule::at_most_255_bytes);
  EXPECT_THAT(artifact_name_fault(faces + faces)->message, HasSubstr("504 bytes"));
}

// NM-06
TEST(ArtifactName, CountsTheWholeNameAndNotItsSegments) {
  std::string deep;
  for (int i = 0; i < 40; ++i) {
    deep += std::string(200, 'd') + "/";
  }
  EXPECT_EQ(broken(deep + "f"), Rule::at_most_255_bytes);
  EXPECT_EQ(broken(std::string(127, 'a') + "/" + std::string(127, 'b')), std::nullopt);
  EXPECT_EQ(broken(std::string(127, 'a') + "/" + std::string(128, 'b')), Rule::at_most_255_bytes);
}

TEST(ArtifactName, NeverRepeatsANameThatLeadsElsewhereToAModel) {
  for (const char* name : {"/secret-place", "../secret-place", "a/../secret-place",
                           "secret-place\\x", "..\\secret-place"}) {
    const auto fault = artifact_name_fault(name);
    ASSERT_TRUE(fault) << name;
    EXPECT_THAT(fault->message, Not(HasSubstr("secret-place")));
    EXPECT_THAT(fault->operator_message, HasSubstr("secret-place"));
  }
  EXPECT_THAT(artifact_name_fault("known//name")->message, HasSubstr("known//name"));
}

TEST(ArtifactName, ValidatingThrowsTheRuleAndTheOperatorsText) {
  EXPECT_THAT(expect_refusal<SandboxArtifactNameInvalid>([] { validate_artifact_name(""); }),
              HasSubstr("is empty"));
  try {
    validate_artifact_name("../x");
    FAIL();
  } catch (const ArtifactNameRefused& error) {
    EXPECT_EQ(error.code(), "SandboxArtifactNameInvalid");
    EXPECT_EQ(error.rule(), Rule::no_parent_segment);
    EXPECT_THAT(error.operator_message(), HasSubstr("\"../x\""));
    EXPECT_THAT(error.message(), HasSubstr("accepted is"));
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_NO_THROW(validate_artifact_name("plots/sales.png"));
}

RC_GTEST_PROP(ArtifactName, WhatIsAcceptedStaysBelowAnyDirectoryItIsPutIn, ()) {
  const auto name = *rc::gen::container<std::string>(
      rc::gen::element('a', '.', '/', '\\', '\n', '\xC2', '\x80', '~'));
  if (broken(name)) {
    return;
  }
  RC_ASSERT(is_valid_utf8(name));
  RC_ASSERT(("/" + name + "/").find("/../") == std::string::npos);
  RC_ASSERT(("/" + name + "/").find("/./") == std::string::npos);
  RC_ASSERT(("/" + name + "/").find("//") == std::string::npos);
  RC_ASSERT(name.find('\\') == std::string::npos);
  RC_ASSERT(name.size() <= kMaxArtifactNameBytes);
}

RC_GTEST_PROP(ArtifactName, AnyBytesGiveAMessageThatIsOneLineOfText, (const std::string& name)) {
  const auto fault = artifact_name_fault(name);
  RC_PRE(fault.has_value());
  for (const std::string& text : {fault->message, fault->operator_message}) {
    RC_ASSERT(is_valid_utf8(text));
    RC_ASSERT(std::ranges::none_of(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }));
  }
}

// NM-02
TEST(CollisionKey, IgnoresLetterCaseAndComposition) {
  EXPECT_EQ(collision_key("A.txt"), collision_key("a.txt"));
  EXPECT_EQ(collision_key("D/x"), collision_key("d/x"));
  EXPECT_EQ(collision_key("\u00c9"), collision_key("e\u0301"));
  EXPECT_EQ(collision_key("\u212a.txt"), collision_key("k.txt"));        // Kelvin sign
  EXPECT_EQ(collision_key("\u0130.txt"), collision_key("i\u0307.txt"));  // dotted capital I
  EXPECT_EQ(collision_key("\u0130\u0130"), collision_key("i\u0307i\u0307"));
  EXPECT_EQ(collision_key("\u03a9"), collision_key("\u2126"));  // Ohm sign
}

// NM-02
TEST(CollisionKey, IsLowerCaseAndNotCaseFolding) {
  EXPECT_NE(collision_key("stra\u00dfe"), collision_key("strasse"));
  EXPECT_NE(collision_key("a.txt"), collision_key("a .txt"));
  EXPECT_NE(collision_key("\uff21"), collision_key("a"));  // full-width A is another letter
}

RC_GTEST_PROP(CollisionKey, IsItsOwnKey, (const std::string& text)) {
  const std::string name = replace_invalid_utf8(text);
  RC_ASSERT(collision_key(collision_key(name)) == collision_key(name));
  RC_ASSERT(collision_key(lower_case(name)) == collision_key(name));
  RC_ASSERT(collision_key(normalise_nfc(name)) == collision_key(name));
}

std::string clash(const std::vector<std::string>& names, NameComparison comparison) {
  return expect_refusal<SandboxArtifactNameCollision>(
      [&] { refuse_name_clashes(names, comparison); });
}

// NM-02
TEST(NameClashes, TellTheSameNameFromOneThatDiffersInCase) {
  EXPECT_THAT(clash({"a.txt", "b", "a.txt"}, NameComparison::collision_key),
              HasSubstr("\"a.txt\" is given twice"));
  const std::string differing = clash({"A.txt", "a.txt"}, NameComparison::collision_key);
  EXPECT_THAT(differing, HasSubstr("\"A.txt\" and \"a.txt\" differ only in letter case"));
  EXPECT_THAT(clash({"\u00e9", "e\u0301"}, NameComparison::collision_key),
              HasSubstr("differ only in letter case or in Unicode composition"));
  EXPECT_THAT(clash({"a", "a"}, NameComparison::exact), HasSubstr("given twice"));
}

TEST(NameClashes, RefuseANameThatIsADirectoryOfAnother) {
  for (const auto comparison : {NameComparison::exact, NameComparison::collision_key}) {
    EXPECT_THAT(clash({"a", "a/b"}, comparison), HasSubstr("\"a\" is also a directory of \"a/b\""));
    EXPECT_THAT(clash({"a/b", "a"}, comparison), HasSubstr("\"a\" is also a directory of \"a/b\""));
    EXPECT_THAT(clash({"a/b/c/d", "x", "a/b"}, comparison), HasSubstr("\"a/b\" is also"));
    EXPECT_THAT(clash({"x", "a/b", "a/b/c/d"}, comparison), HasSubstr("\"a/b\" is also"));
  }
  EXPECT_THAT(clash({"A", "a/b"}, NameComparison::collision_key),
              HasSubstr("\"A\" is also a directory of \"a/b\""));
  EXPECT_THAT(clash({"a/b", "A"}, NameComparison::collision_key),
              HasSubstr("\"A\" is also a directory of \"a/b\""));
}

// FO-13
TEST(NameClashes, LetNeighboursPass) {
  for (const auto comparison : {NameComparison::exact, NameComparison::collision_key}) {
    // "a-" and "a." sort between "a" and "a/": a prefix test by characters alone would trip.
    EXPECT_NO_THROW(
        refuse_name_clashes(std::vector<std::string>{"a", "a-", "a.b", "a0", "ab", "b/a", "a-x/c",
                                                     "c/x", "c/y", "c/z/x"},
                            comparison));
    EXPECT_NO_THROW(
        refuse_name_clashes(std::vector<std::string>{"a/x.txt", "b/x.txt"}, comparison));
  }
  EXPECT_NO_THROW(
      refuse_name_clashes(std::vector<std::string>{"A", "a", "B/x", "b"}, NameComparison::exact));
  EXPECT_NO_THROW(refuse_name_clashes({}, NameComparison::exact));
}

TEST(NameClashes, ARefusedNameIsNotRemembered) {
  NameSet names(NameComparison::exact);
  names.add("a");
  EXPECT_THROW(names.add("a/b"), SandboxArtifactNameCollision);
  EXPECT_THROW(names.add("a/b"), SandboxArtifactNameCollision);
  EXPECT_NO_THROW(names.add("b"));
}

RC_GTEST_PROP(NameClashes, AgreeWithComparingEveryPair, ()) {
  const auto segment = rc::gen::element<std::string>("a", "b", "A", "a-", "a.");
  const auto name = rc::gen::map(
      rc::gen::resize(3, rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(segment))),
      [](const std::vector<std::string>& parts) {
        std::string joined = parts[0];
        for (std::size_t i = 1; i < parts.size(); ++i) {
          joined += "/" + parts[i];
        }
        return joined;
      });
  const auto names = *rc::gen::resize(5, rc::gen::container<std::vector<std::string>>(name));
  const auto comparison = *rc::gen::element(NameComparison::exact, NameComparison::collision_key);
  bool expected = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto key = [&](const std::string& text) {
        return comparison == NameComparison::exact ? text : collision_key(text);
      };
      const std::string one = key(names[i]);
      const std::string other = key(names[j]);
      expected =
          expected || one == other || one.starts_with(other + "/") || other.starts_with(one + "/");
    }
  }
  bool refused = false;
  try {
    refuse_name_clashes(names, comparison);
  } catch (const SandboxArtifactNameCollision&) {
    refused = true;
  }
  RC_ASSERT(refused == expected);
}

TEST(PortableName, ChangesWhatWindowsCannotStore) {
  EXPECT_EQ(portable_name("a<b>c:d\"e|f?g*h"), "a_b_c_d_e_f_g_h");
  EXPECT_EQ(portable_name(std::string("a\x01") + '\x1f' + '\0' + "b"), "a___b");
  EXPECT_EQ(portable_name("a. ./b . "), "a/b");
  EXPECT_EQ(portable_name("..."), "_");
  EXPECT_EQ(portable_name(" "), "_");
  EXPECT_EQ(portable_name("a/.../b"), "a/_/b");
}

TEST(PortableName, MovesReservedStemsAside) {
  EXPECT_EQ(portable_name("nul.tar.gz"), "nul_.tar.gz");
  EXPECT_EQ(portable_name("Con"), "Con_");
  EXPECT_EQ(portable_name("x/PRN.txt/aux"), "x/PRN_.txt/aux_");
  EXPECT_EQ(portable_name("com1"), "com1_");
  EXPECT_EQ(portable_name("LPT9.x"), "LPT9_.x");
  EXPECT_EQ(portable_name("COM\u00b9.x"), "COM\u00b9_.x");
  EXPECT_EQ(portable_name("lpt\u00b3"), "lpt\u00b3_");
  EXPECT_EQ(portable_name("con."), "con_");
}

TEST(PortableName, LeavesTheRestAlone) {
  for (const char* name : {"report.csv", "COM0", "COM\u2074", "COM10", "com", "lpt", "con .txt",
                           "console", "a.con", "nul_", "\u00e9", "a\x7f", "~", "a/b/c.d"}) {
    EXPECT_EQ(portable_name(name), name);
  }
}

RC_GTEST_PROP(PortableName, IsPortableAlready, (const std::string& name)) {
  const std::string once = portable_name(name);
  RC_ASSERT(portable_name(once) == once);
  RC_ASSERT(once.find_first_of("<>:\"|?*") == std::string::npos);
  RC_ASSERT(std::ranges::count(once, '/') == std::ranges::count(name, '/'));
}

}  // namespace
}  // namespace casemate
