#include "casemate/base/shell_word.h"

#include <gtest/gtest.h>

namespace casemate {
namespace {

TEST(ShellWord, IsAsItStandsWhereNoShellTakesItForAnythingElse) {
  EXPECT_EQ(shell_word("/sys/fs/cgroup/cpu,cpuacct"), "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(shell_word(R"(/a\x2db)"), R"('/a\x2db')");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_word("~/$x"), "'~/$x'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace casemate
