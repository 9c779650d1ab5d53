#include "apps/casemate/program_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "casemate/core/errors.h"

namespace casemate::app {
namespace {

using ::testing::HasSubstr;

class ProgramFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "program-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& bytes) {
    const std::string path = directory_ / "program.py";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::filesystem::path directory_;
};

std::string refusal(const std::string& path) {
  try {
    read_program(path, 10);
  } catch (const InvalidArgument& refused) {
    return refused.message();
  }
  return "nothing was refused";
}

TEST_F(ProgramFile, NamesWhatCannotBeRead) {
  EXPECT_THAT(refusal(directory_), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal(directory_ / "no\nthing"),
              HasSubstr("no\\nthing' cannot be read: No such file"));
  EXPECT_THAT(refusal(write("x") + "/below"), HasSubstr("Not a directory"));
}

TEST_F(ProgramFile, TakesExactlyTheCapAndRefusesOneByteMore) {
  EXPECT_EQ(read_program(write("0123456789"), 10), "0123456789");
  const std::string path = write("0123456789a");
  EXPECT_THROW(read_program(path, 10), SandboxTransferCapExceeded);
  EXPECT_THROW(read_program("/dev/zero", 1'000'000), SandboxTransferCapExceeded);
}

// CLI-04
TEST_F(ProgramFile, KeepsEveryByte) {
  const std::string bytes("\xef\xbb\xbfprint(1)\r\n\0\xff", 14);
  EXPECT_EQ(read_program(write(bytes), 100), bytes);
  EXPECT_EQ(read_program(write(""), 100), "");
}

}  // namespace
}  // namespace casemate::app
