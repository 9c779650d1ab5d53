// Sandboxes from images, where the command line does not reach: work directories, and hostile
// directories.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/linux/copied_program.h"
#include "tests/linux/linux_test.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::linux_tests {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LinuxImages : public LinuxTest {
 protected:
  LinuxImages() {
    fs::create_directories(root() / "etc");
    fs::create_directories(root() / "usr");
    fs::create_directory_symlink("usr/bin", root() / "bin");
    fs::create_directory_symlink("usr/lib", root() / "lib");
    fs::create_directory_symlink("usr/lib64", root() / "lib64");
  }

  fs::path root() const { return scratch_ / "root"; }

  // This machine's, with the libraries they need.
  void give_it_a_shell() {
    for (const char* path : {"/bin/sh", "/bin/ls", "/bin/cat", "/usr/bin/wc"})
      copy_program(path, root());
  }

  SandboxSpec of_image() const {
    SandboxSpec wanted = spec();
    wanted.image = "dir:" + root().native();
    return wanted;
  }
  std::string see(const std::string& line, const SandboxSpec& wanted) {
    const ExecResult result = acquire(key(), wanted)->exec(shell(line), {});
    return result.stdout + result.stderr;
  }

  Scratch scratch_;
};

TEST_F(LinuxImages, AWorkDirectoryAtTheTopHidesTheImagesOwnAndOneBelowItIsRefused) {
  give_it_a_shell();
  put(root() / "data/of-the-image", "x");
  SandboxSpec wanted = of_image();
  wanted.work_dir = "/data";
  EXPECT_THAT(see("ls /data", wanted), testing::Not(HasSubstr("of-the-image")));
  wanted.work_dir = "/data/below";
  expect_refusal<InvalidArgument>([&] { acquire(key("b"), wanted); }, "a /data of its own");
  wanted.work_dir = "/other/below";
  EXPECT_THAT(see("pwd", wanted), HasSubstr("/other/below/"));
}

TEST_F(LinuxImages, WhatIsNoFileOrDirectoryAtItsTopIsLeftOut) {
  give_it_a_shell();
  ASSERT_EQ(mkfifo((root() / "fifo").c_str(), 0666), 0);
  ASSERT_EQ(mkfifo((root() / "etc/fifo").c_str(), 0666), 0);
  put(root() / "secret", "only the owner's");
  fs::permissions(root() / "secret", fs::perms::owner_read);
  put(root() / "large", std::string(1 << 20, 'x'));
  put(root() / "dev/of-the-image", "x");
  const std::string seen =
      see("ls / /etc /dev; cat /large | head -c 1; cat /large > /dev/null", of_image());
  EXPECT_THAT(seen, testing::Not(HasSubstr("fifo")));
  EXPECT_THAT(seen, testing::Not(HasSubstr("secret")));
  EXPECT_THAT(seen, testing::Not(HasSubstr("of-the-image")));
  EXPECT_THAT(seen, HasSubstr("large"));
  EXPECT_THAT(seen, HasSubstr("urandom"));
}

TEST_F(LinuxImages, LinksWhereTheSandboxHasDirectoriesAreNotFollowed) {
  give_it_a_shell();
  fs::remove_all(root() / "etc");
  put(scratch_ / "outside/secret", "outside");
  for (const char* name : {"etc", "home", "var", "tmp", "root"}) {
    fs::create_directory_symlink(scratch_ / "outside", root() / name);
  }
  const std::string seen = see("ls /etc /home /var /tmp; ls /root/", of_image());
  EXPECT_THAT(seen, testing::Not(HasSubstr("secret")));
  EXPECT_THAT(seen, HasSubstr("passwd"));
}

TEST_F(LinuxImages, VeryMuchInEtcIsShownAllTheSame) {
  give_it_a_shell();
  for (int i = 0; i < 6000; ++i) put(root() / "etc" / ("f" + std::to_string(i)), std::to_string(i));
  for (int i = 0; i < 300; ++i) {
    for (int j = 0; j < 20; ++j) {
      put(root() / "etc" / ("d" + std::to_string(i)) / std::to_string(j), "inner");
    }
  }
  put(root() / "etc/large", std::string(1 << 20, 'x'));
  put(root() / "etc/passwd", "of the image");
  put(root() / "etc/resolv.conf", "of the image");
  put(root() / "etc/secret", "only the owner's");
  fs::permissions(root() / "etc/secret", fs::perms::owner_read);
  ASSERT_EQ(mkfifo((root() / "etc/fifo").c_str(), 0666), 0);
  fs::create_symlink("f1", root() / "etc/link");
  const std::string seen =
      see("ls -d /etc/f[0-9]* | wc -l; ls /etc/d299 | wc -l; cat /etc/link; wc -c < /etc/large;"
          "cat /etc/d0/19; cat /etc/passwd /etc/resolv.conf; ls /etc/secret /etc/fifo;"
          "echo x > /etc/f1; echo x > /etc/new; cat /etc/machine-id | wc -c",
          of_image());
  EXPECT_THAT(seen, HasSubstr("6000\n20\n11048576\ninner"));
  EXPECT_THAT(seen, HasSubstr("user:x:1000"));
  EXPECT_THAT(seen, testing::Not(HasSubstr("of the image")));
  for (const char* left_out : {"secret", "fifo"}) {
    EXPECT_THAT(seen, HasSubstr(std::string("'/etc/") + left_out + "': No such file"));
  }
  EXPECT_THAT(seen, HasSubstr("f1: Read-only file system"));
  EXPECT_THAT(seen, HasSubstr("new: Read-only file system"));
  EXPECT_THAT(seen, HasSubstr("\n33\n"));
}

TEST_F(LinuxImages, ADirectoryThatIsClosedToOthersStaysSo) {
  if (getuid() != 0)
    GTEST_SKIP() << "needs root: what is this user's own, its programs may read too";
  give_it_a_shell();
  for (const char* closed : {"secret", "var/secret", "etc/secret"}) {
    put(root() / closed / "key", "of the image");
    fs::permissions(root() / closed, fs::perms::owner_all);
  }
  const std::string seen =
      see("cat /secret/key /var/secret/key /etc/secret/key; ls /secret /etc/secret", of_image());
  EXPECT_THAT(seen, testing::Not(HasSubstr("of the image")));
  EXPECT_THAT(seen, testing::Not(HasSubstr("key\n")));
}

TEST_F(LinuxImages, AnImageOfTooManyDirectoriesAtItsTopIsRefused) {
  give_it_a_shell();
  for (int i = 0; i < 300; ++i) fs::create_directories(root() / ("d" + std::to_string(i)) / "sub");
  expect_refusal<SandboxUnavailable>([&] { acquire(key(), of_image()); },
                                     "image of too many directories at its top");
}

}  // namespace
}  // namespace casemate::linux_tests
