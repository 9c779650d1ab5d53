#include "casemate/local/interpreter_mark.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/scratch.h"

namespace casemate::local {
namespace {

namespace fs = std::filesystem;

std::pair<time_t, long> change_time(const fs::path& file) {
  struct stat seen{};
  EXPECT_EQ(stat(file.c_str(), &seen), 0);
  return {seen.st_ctim.tv_sec, seen.st_ctim.tv_nsec};
}

class InterpreterMark : public testing::Test {
 protected:
  InterpreterMark() {
    put(scratch_ / "root/usr/bin/python3.11", "an interpreter");
    fs::create_symlink("/usr/bin/python3.11", scratch_ / "root/usr/bin/python3");
  }
  std::string image() const { return "dir:" + (scratch_ / "root").native(); }
  std::string mark(const std::string& interpreter) const {
    return interpreter_mark(image(), {.interpreter = interpreter});
  }
  Scratch scratch_;
};

TEST_F(InterpreterMark, IsOfTheFileThatTheNameMeansInTheImage) {
  EXPECT_FALSE(mark("python3").empty());
  EXPECT_EQ(mark("python3"), mark("/usr/bin/python3.11"));
  EXPECT_EQ(mark("/usr/bin/python3"), mark("python3"));
  EXPECT_EQ(mark("missing"), "");
  EXPECT_EQ(mark("../../../../etc/passwd"), "") << "nothing leads out of the image";
}

TEST_F(InterpreterMark, ChangesWithTheFile) {
  const std::string before = mark("python3");
  EXPECT_EQ(mark("python3"), before);
  const fs::path target = scratch_ / "root/usr/bin/python3.11";
  const auto time = fs::last_write_time(target);
  const auto changed = change_time(target);
  // The clock of a file system may stand still for some milliseconds.
  do {
    put(target, "AN INTERPRETER");
    fs::last_write_time(target, time);
  } while (changed == change_time(target));
  EXPECT_NE(mark("python3"), before) << "in its place, with its size and time";
  const std::string second = mark("python3");
  put(scratch_ / "other", "an interpreter");
  fs::rename(scratch_ / "other", target);
  EXPECT_NE(mark("python3"), second);
  fs::remove(target);
  EXPECT_EQ(mark("python3"), "");
}

TEST_F(InterpreterMark, IsOfThisMachinesFileForItsOwnImageAndOfNoneThatCannotChange) {
  EXPECT_FALSE(interpreter_mark("host", {.interpreter = "/bin/sh"}).empty());
  EXPECT_EQ(interpreter_mark("registry.invalid/image:1", {.interpreter = "/bin/sh"}), "");
  EXPECT_EQ(interpreter_mark("no: image", {.interpreter = "/bin/sh"}), "");
}

}  // namespace
}  // namespace casemate::local
