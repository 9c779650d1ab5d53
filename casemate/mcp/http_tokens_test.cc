#include "casemate/mcp/http_tokens.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::mcp {
namespace {

const std::string kOne = "0123456789012345678901";
const std::string kOther = "abcdefghijklmnopqrstuv";

class TokenFileTest : public testing::Test {
 protected:
  // By rename, as whoever replaces a secret should: never seen half written.
  void write(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  Scratch scratch_;
  std::string path_ = scratch_ / "tokens";
  std::string logged_;
  Log log_ = [this](LogLevel, std::string_view text) { logged_.append(text).append("\n"); };
};

TEST_F(TokenFileTest, EachTokenIsACallerOfHisOwnAndAnythingElseIsNobody) {
  write("# for the editor\n" + kOne + "\n\n" + kOther + "\r\n");
  TokenFile tokens(path_, log_);
  const auto one = tokens.caller_of(kOne);
  const auto other = tokens.caller_of(kOther);
  ASSERT_TRUE(one);
  ASSERT_TRUE(other);
  EXPECT_NE(*one, *other);
  EXPECT_EQ(tokens.caller_of(kOne), one);
  EXPECT_EQ(one->find(kOne), std::string::npos);
  for (const std::string& wrong : {std::string(), kOne.substr(1), kOne + "x", kOne + "\n" + kOther,
                                   std::string("# for the editor"), *one}) {
    EXPECT_FALSE(tokens.caller_of(wrong)) << wrong;
  }
}

TEST_F(TokenFileTest, AFileThatCannotBeUsedIsRefusedWithTheWayToMendIt) {
  expect_refusal<InvalidArgument>([&] { TokenFile(path_, log_); }, "cannot be read");
  for (const std::string& text : {std::string(), std::string("# nothing\n"), kOne.substr(1) + "\n",
                                  "two words of a token, no\n" + kOne, std::string(513, 'x'),
                                  kOne + "\x01", kOne + "\xc3\xa9"}) {
    write(text);
    expect_refusal<InvalidArgument>([&] { TokenFile(path_, log_); }, "token file");
  }
  write(std::string(512, 'x'));
  EXPECT_NO_THROW(TokenFile(path_, log_));
  write(kOne);
  ASSERT_EQ(chmod(path_.c_str(), 0606), 0);
  expect_refusal<InvalidArgument>([&] { TokenFile(path_, log_); }, "written by everybody");
}

TEST_F(TokenFileTest, AReplacedTokenCountsFromThenOn) {
  write(kOne);
  TokenFile tokens(path_, log_);
  EXPECT_TRUE(tokens.caller_of(kOne));
  write(kOther);
  EXPECT_FALSE(tokens.caller_of(kOne));
  EXPECT_TRUE(tokens.caller_of(kOther));
}

TEST_F(TokenFileTest, WithoutAUsableFileNobodyIsLetInUntilThereIsOne) {
  write(kOne);
  TokenFile tokens(path_, log_);
  std::filesystem::remove(path_);
  EXPECT_FALSE(tokens.caller_of(kOne));
  EXPECT_NE(logged_.find("nobody is let in"), std::string::npos);
  EXPECT_EQ(logged_.find(kOne), std::string::npos);
  write(kOne);
  EXPECT_TRUE(tokens.caller_of(kOne));
}

TEST_F(TokenFileTest, WhatCouldNotBeReadForAMomentIsReadTheNextTime) {
  write(kOne);
  TokenFile tokens(path_, log_);
  write(kOther);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = tokens.caller_of(kOther);
  const auto refused_again = tokens.caller_of(kOther);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(refused);
  EXPECT_FALSE(refused_again);
  EXPECT_EQ(logged_.find("nobody"), logged_.rfind("nobody")) << "said once";
  EXPECT_TRUE(tokens.caller_of(kOther));
}

TEST_F(TokenFileTest, AChangeThatLeavesSizeAndTimesCountsToo) {
  write(kOne);
  TokenFile tokens(path_, log_);
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  std::ofstream(path_) << std::string(kOne.size(), 'y');  // the same inode
  const std::array<timespec, 2> times{status.st_atim, status.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times.data(), 0), 0);
  EXPECT_FALSE(tokens.caller_of(kOne));
  EXPECT_TRUE(tokens.caller_of(std::string(kOne.size(), 'y')));
}

}  // namespace
}  // namespace casemate::mcp
