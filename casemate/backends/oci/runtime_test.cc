#include "casemate/backends/oci/runtime.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::oci {
namespace {

namespace fs = std::filesystem;

void write_script(const fs::path& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(path, fs::perms::owner_all);
}

Runtime runc(std::string version) {
  return {.path = "/bin/x", .family = RuntimeFamily::runc, .version = std::move(version)};
}

TEST(OciRuntime, IsWhatItSaysAndNotWhatItIsCalled) {
  const auto crun = parse_version("/opt/runc", "crun version 1.8.1\ncommit: f8a0\nspec: 1.0.0\n");
  ASSERT_TRUE(crun);
  EXPECT_EQ(crun->family, RuntimeFamily::crun);
  EXPECT_EQ(crun->version, "1.8.1");
  EXPECT_EQ(crun->path, "/opt/runc");
  const auto runc = parse_version("/opt/crun", "runc version 1.1.5+ds1\ncommit: 1.1.5\n");
  ASSERT_TRUE(runc);
  EXPECT_EQ(runc->family, RuntimeFamily::runc);
  EXPECT_EQ(runc->version, "1.1.5+ds1");
  const auto runsc =
      parse_version("/opt/runc", "runsc version release-20240729.0\nspec: 1.1.0-rc.1\n");
  ASSERT_TRUE(runsc);
  EXPECT_EQ(runsc->family, RuntimeFamily::runsc);
  EXPECT_EQ(runsc->version, "release-20240729.0");
  for (const char* other : {"", "\n", "youki version 0.5.0\n", "crun 1.8.1\n", " crun version 1\n",
                            "GNU coreutils\ncrun version 1.8.1\n"}) {
    EXPECT_FALSE(parse_version("/bin/x", other)) << other;
  }
}

TEST(OciRuntime, AVersionWithControlsIsShownWithoutThem) {
  const auto runtime = parse_version("/bin/x", "crun version \x1b[31m1\n");
  ASSERT_TRUE(runtime);
  EXPECT_EQ(runtime->version.find('\x1b'), std::string::npos);
}

TEST(OciRuntime, VersionsWithoutPublishedFixesAreNamedByTheirFaults) {
  for (const char* fixed : {"1.2.8", "1.2.9", "1.3.3", "1.3.10", "1.4.0", "1.10.0", "2.0.0"}) {
    EXPECT_TRUE(known_faults(runc(fixed)).empty()) << fixed;
  }
  for (const char* open : {"1.1.5+ds1", "1.2.7", "1.3.0", "1.3.2", "1.0.0-rc93", "1", ""}) {
    EXPECT_EQ(known_faults(runc(open)).size(), 3U) << open;
  }
  EXPECT_TRUE(
      known_faults({.path = "/bin/x", .family = RuntimeFamily::crun, .version = "1.8.1"}).empty());
}

TEST(OciRuntime, OfRunscTheDayOfTheReleaseTells) {
  const auto faults = [](std::string version) {
    return known_faults(
        {.path = "/bin/x", .family = RuntimeFamily::runsc, .version = std::move(version)});
  };
  for (const char* fixed : {"release-20240729.0", "0.0~20240729.0", "release-20250820.0-6", "",
                            "VERSION_MISSING", "1.2.3"}) {
    EXPECT_TRUE(faults(fixed).empty()) << fixed;
  }
  for (const char* open : {"release-20230807.0", "0.0~20221219.0", "release-20240728.9"}) {
    EXPECT_EQ(faults(open), std::vector<std::string_view>{"CVE-2023-7258"}) << open;
  }
}

TEST(OciRuntime, IsFoundByPathByNameOrAsTheFirstThatIsThere) {
  const Scratch scratch;
  const fs::path first = scratch / "first";
  const fs::path second = scratch / "second";
  fs::create_directory(first);
  fs::create_directory(second);
  const std::string search = first.native() + ":" + second.native();
  EXPECT_EQ(find_program("", search), std::nullopt);
  write_script(second / "runsc", "");
  EXPECT_EQ(find_program("", search), (second / "runsc").native());
  write_script(second / "runc", "");
  EXPECT_EQ(find_program("", search), (second / "runc").native());
  write_script(second / "crun", "");
  EXPECT_EQ(find_program("", search), (second / "crun").native());
  write_script(first / "other", "");
  EXPECT_EQ(find_program("other", search), (first / "other").native());
  EXPECT_EQ(find_program((first / "other").native(), ""), (first / "other").native());
  EXPECT_EQ(find_program((first / "none").native(), search), std::nullopt);
  EXPECT_EQ(find_program(first.native(), search), std::nullopt) << "a directory is no program";
  std::ofstream(first / "crun") << "text";
  fs::permissions(first / "crun", fs::perms::owner_read);
  EXPECT_EQ(find_program("", search), (second / "crun").native()) << "what nobody may execute";
}

TEST(OciRuntime, IsNeverLookedForInTheCurrentDirectory) {
  const Scratch scratch;
  write_script(scratch / "crun", "");
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path());
  EXPECT_EQ(find_program("", ""), std::nullopt);
  EXPECT_EQ(find_program("", "::."), std::nullopt);
  EXPECT_EQ(find_program("crun", ":"), std::nullopt);
  fs::current_path(before);
}

TEST(OciRuntime, IsAskedOnceAndRefusedWhenItIsNone) {
  const Scratch scratch;
  const fs::path program = scratch / "program";
  write_script(program, "[ \"$*\" = --version ] && [ -z \"$HOME\" ] && echo crun version 9.9");
  EXPECT_EQ(ask_runtime(program),
            (Runtime{.path = program.native(), .family = RuntimeFamily::crun, .version = "9.9"}));
  write_script(program, "echo docker version 1; exit 0");
  expect_refusal<SandboxUnavailable>([&] { ask_runtime(program); }, {"docker version 1", "crun"});
  write_script(program, "exit 3");
  expect_refusal<SandboxUnavailable>([&] { ask_runtime(program); }, "no OCI runtime");
  // One that never stops talking is heard a bounded time.
  write_script(program, "yes");
  expect_refusal<SandboxUnavailable>([&] { ask_runtime(program); }, "no OCI runtime");
  expect_refusal<SandboxUnavailable>([&] { ask_runtime(scratch / "none"); }, "cannot be started");
}

}  // namespace
}  // namespace casemate::oci
