#include "apps/casemate/mcp_directories.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::app {
namespace {

class McpDirectories : public testing::Test {
 protected:
  McpDirectories() {
    std::filesystem::create_directories(scratch_ / "data/sub");
    std::filesystem::create_directory_symlink(scratch_ / "data", scratch_ / "alias");
    options_.files = scratch_ / "data";
    options_.out_dir = scratch_ / "out";
  }
  void expect_refused(const std::string& text) {
    expect_refusal<InvalidArgument>([this] { check_directories(options_, files_); }, text);
  }
  void expect_fine() { EXPECT_NO_THROW(check_directories(options_, files_)); }

  const Scratch scratch_;
  McpOptions options_;
  std::vector<ServerFile> files_;
};

TEST_F(McpDirectories, DirectoriesThatOverlapAreRefusedAlsoWhereOneIsNotThereYet) {
  for (const std::string out :
       {"data", "data/", "data/new/er", "data/sub", ".", "alias", "alias/new", "x/../data/new"}) {
    options_.out_dir = scratch_ / out;
    expect_refused("lie in one another");
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "data/new"));
  }
  for (const std::string out : {"out", "data-2", "out/data"}) {
    options_.out_dir = scratch_ / out;
    expect_fine();
  }
  options_.out_dir = scratch_ / "data";
  options_.unsafe_shared_store = true;
  expect_fine();
}

TEST_F(McpDirectories, AFileOfTheServersLiesInNeither) {
  std::filesystem::create_directory(scratch_ / "out");
  std::filesystem::create_directory(scratch_ / "keys");
  for (const char* name : {"data/tokens", "data/sub/tokens", "out/tokens", "keys/tokens"}) {
    put(scratch_ / name, "x");
  }
  std::filesystem::create_symlink(scratch_ / "data/tokens", scratch_ / "keys/into");
  std::filesystem::create_symlink(scratch_ / "keys/tokens", scratch_ / "data/out-of");
  options_.unsafe_shared_store = true;
  for (const char* name : {"data/tokens", "data/sub/tokens", "out/tokens", "keys/into",
                           "data/out-of", "alias/tokens"}) {
    files_ = {{"--token-file", scratch_ / name}};
    expect_refused("--token-file");
  }
  files_ = {{"--token-file", scratch_ / "keys/tokens"}};
  expect_fine();
  options_.files.reset();
  options_.out_dir.reset();
  files_ = {{"--tls-key", scratch_ / "data/tokens"}};
  expect_fine();
}

}  // namespace
}  // namespace casemate::app
