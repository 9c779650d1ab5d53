#include "casemate/sys/staged_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "casemate/sys/beneath.h"
#include "casemate/sys/without_call_test.h"
#include "tests/support/scratch.h"

namespace casemate::sys {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

int error_of(const std::function<void()>& step) {
  try {
    step();
    return 0;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

class Staged : public testing::TestWithParam<Staging> {
 protected:
  Staged()
      : directory_(
            std::make_shared<UniqueFd>(open_path(scratch_.path().native(), O_PATH | O_DIRECTORY))) {
  }

  StagedFile make(const std::string& content) {
    StagedFile file(directory_, GetParam());
    file.write(content);
    file.sync();
    return file;
  }

  Scratch scratch_;
  std::shared_ptr<const UniqueFd> directory_;
};

TEST_P(Staged, IsThereWholeOnceKept) {
  StagedFile file = make("content");
  EXPECT_FALSE(fs::exists(scratch_ / "name"));
  file.publish("name");
  file.keep();
  EXPECT_EQ(get(scratch_ / "name"), "content");
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("name"));
}

TEST_P(Staged, AFileThatTakesNothingIsAnErrorAndNotTriedForEver) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself looks at memory by writing it somewhere";
#endif
  StagedFile file(directory_, GetParam());
  int error = 0;
  without_call(SYS_write, 0, 0, [&] { error = error_of([&] { file.write({"x", 1}); }); });
  EXPECT_EQ(error, EIO);
}

TEST_P(Staged, LeavesNothingWhenItIsNotKept) {
  {
    const StagedFile file = make("content");
  }
  EXPECT_THAT(tree(scratch_.path()), IsEmpty());
  {
    StagedFile file = make("content");
    file.publish("name");
    EXPECT_TRUE(fs::exists(scratch_ / "name"));
  }
  EXPECT_THAT(tree(scratch_.path()), IsEmpty());
}

TEST_P(Staged, PublishingRefusesWhateverHasTheName) {
  put(scratch_ / "file", "old");
  fs::create_directory(scratch_ / "directory");
  fs::create_symlink("nowhere", scratch_ / "link");
  for (const char* name : {"file", "directory", "link"}) {
    StagedFile file = make("new");
    EXPECT_EQ(error_of([&] { file.publish(name); }), EEXIST) << name;
  }
  EXPECT_EQ(get(scratch_ / "file"), "old");
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("directory", "file", "link"));
}

TEST_P(Staged, ReplacingPutsBackWhatWasThereUnlessKept) {
  put(scratch_ / "name", "old");
  {
    StagedFile file = make("new");
    file.replace("name");
    EXPECT_EQ(get(scratch_ / "name"), "new");
  }
  EXPECT_EQ(get(scratch_ / "name"), "old");
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("name"));
  StagedFile file = make("new");
  file.replace("name");
  file.keep();
  EXPECT_EQ(get(scratch_ / "name"), "new");
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("name"));
}

TEST_P(Staged, ReplacingNothingIsPublishing) {
  StagedFile file = make("new");
  file.replace("name");
  file.keep();
  EXPECT_EQ(get(scratch_ / "name"), "new");
}

TEST_P(Staged, ReplacingALinkLeavesItsTarget) {
  put(scratch_ / "target", "target");
  fs::create_symlink("target", scratch_ / "link");
  StagedFile file = make("new");
  file.replace("link");
  file.keep();
  EXPECT_FALSE(fs::is_symlink(scratch_ / "link"));
  EXPECT_EQ(get(scratch_ / "link"), "new");
  EXPECT_EQ(get(scratch_ / "target"), "target");
}

TEST_P(Staged, ReplacingADirectoryIsRefusedAndItStays) {
  put(scratch_ / "directory/file", "kept");
  {
    StagedFile file = make("new");
    EXPECT_EQ(error_of([&] { file.replace("directory"); }), EISDIR);
  }
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("directory", "directory/file"));
}

TEST_P(Staged, TakingBackLeavesWhatSomebodyElsePutThere) {
  std::optional<StagedFile> file(make("ours"));
  file->publish("name");
  fs::remove(scratch_ / "name");
  put(scratch_ / "name", "theirs");
  file.reset();
  EXPECT_EQ(get(scratch_ / "name"), "theirs");
}

TEST_P(Staged, TakingBackAReplacementLeavesWhatSomebodyElsePutThere) {
  put(scratch_ / "name", "old");
  std::optional<StagedFile> file(make("ours"));
  file->replace("name");
  put(scratch_ / "other", "theirs");
  fs::rename(scratch_ / "other", scratch_ / "name");
  file.reset();
  EXPECT_EQ(get(scratch_ / "name"), "theirs");
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("name"));
}

TEST_P(Staged, AForkedChildTakesNothingBack) {
  std::optional<StagedFile> file(make("content"));
  file->publish("name");
  const pid_t child = fork();
  if (child == 0) {
    file.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(scratch_ / "name"), "content");
  file->keep();
}

TEST_P(Staged, HasTheModeOfAnOrdinaryFile) {
  StagedFile file = make("x");
  file.publish("name");
  file.keep();
  put(scratch_ / "ordinary", "x");
  EXPECT_EQ(fs::status(scratch_ / "name").permissions(),
            fs::status(scratch_ / "ordinary").permissions());
}

TEST_P(Staged, WorksOnFileSystemsThatKnowNoRenameFlags) {
  without_call(SYS_renameat2, EINVAL, 0, [&] {
    put(scratch_ / "old", "old");
    StagedFile taken = make("new");
    EXPECT_EQ(error_of([&] { taken.publish("old"); }), EEXIST);
    StagedFile fresh = make("new");
    fresh.publish("fresh");
    fresh.keep();
    taken.replace("old");
    taken.keep();
    EXPECT_EQ(get(scratch_ / "old"), "new");
    EXPECT_EQ(get(scratch_ / "fresh"), "new");
    EXPECT_THAT(tree(scratch_.path()), ElementsAre("fresh", "old"));
  });
}

INSTANTIATE_TEST_SUITE_P(Names, Staged, testing::Values(Staging::unnamed, Staging::named),
                         [](const auto& chosen) {
                           return chosen.param == Staging::unnamed ? "unnamed" : "named";
                         });

TEST(StagedFileNames, FallBackToAShortNameWhereThereAreNoUnnamedFiles) {
  const Scratch scratch;
  const auto directory =
      std::make_shared<UniqueFd>(open_path(scratch.path().native(), O_PATH | O_DIRECTORY));
  for (const int error_number : {EOPNOTSUPP, EISDIR, EINVAL}) {
    // The bit that O_TMPFILE has beyond O_DIRECTORY.
    without_call(SYS_openat, error_number, O_TMPFILE & ~O_DIRECTORY, [&] {
      StagedFile file(directory);
      const auto names = tree(scratch.path());
      ASSERT_EQ(names.size(), 1U);
      EXPECT_TRUE(names.begin()->starts_with(".casemate-")) << *names.begin();
      file.write(std::string_view("content"));
      file.sync();
      file.publish("name");
    });
    EXPECT_THAT(tree(scratch.path()), IsEmpty());
  }
}

TEST(ClaimStaging, RemovesWhatKilledProcessesLeftAndNothingElse) {
  const Scratch scratch;
  const UniqueFd directory = open_path(scratch.path().native(), O_PATH | O_DIRECTORY);
  put(scratch / ".casemate-0123456789abcdef", "left");
  fs::create_symlink("kept", scratch / ".casemate-0123456789abcdee");
  for (const char* kept : {"kept", ".casemate-0123456789abcde", ".casemate-0123456789abcdef0",
                           ".casemate-0123456789ABCDEF", ".casemate-000000000000000d/file"}) {
    put(scratch / kept, "x");
  }
  const auto everything = tree(scratch.path());
  {
    // Somebody stages there: what looks left may be theirs.
    const UniqueFd other(open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(flock(other.get(), LOCK_SH | LOCK_NB), 0);
    EXPECT_TRUE(claim_staging(directory.get()));
    EXPECT_EQ(tree(scratch.path()), everything);
  }
  const UniqueFd claim = claim_staging(directory.get());
  EXPECT_TRUE(claim);
  EXPECT_THAT(tree(scratch.path()),
              ElementsAre(".casemate-000000000000000d", ".casemate-000000000000000d/file",
                          ".casemate-0123456789ABCDEF", ".casemate-0123456789abcde",
                          ".casemate-0123456789abcdef0", "kept"));
  // While it is held nobody takes what is staged for left, and others may stage too.
  put(scratch / ".casemate-0123456789abcdef", "staged");
  EXPECT_TRUE(claim_staging(directory.get()));
  EXPECT_EQ(get(scratch / ".casemate-0123456789abcdef"), "staged");
}

TEST(WriteWholeFile, GivesANameToWhatIsWholeAndLeavesNothingElse) {
  const Scratch scratch;
  const UniqueFd directory = open_path(scratch.path().native(), O_PATH | O_DIRECTORY);
  const auto fill = [](std::string_view content) {
    return [content](int file) {
      ASSERT_EQ(write(file, content.data(), content.size()), std::ssize(content));
    };
  };
  EXPECT_TRUE(write_whole_file(directory.get(), "name", 0444, fill("first")));
  EXPECT_FALSE(write_whole_file(directory.get(), "name", 0444, fill("second")));
  EXPECT_EQ(get(scratch / "name"), "first");
  EXPECT_EQ(fs::status(scratch / "name").permissions(), fs::perms(0444));
  EXPECT_EQ(error_of([&] {
              write_whole_file(directory.get(), "other", 0444, [&](int) {
                EXPECT_THAT(tree(scratch.path()), ElementsAre("name")) << "seen before it is whole";
                throw std::system_error(ENOSPC, std::generic_category());
              });
            }),
            ENOSPC);
  EXPECT_THAT(tree(scratch.path()), ElementsAre("name"));
}

TEST(RenameDirectory, TakesNothingFromAnybodyWhateverTheFileSystemCanDo) {
  const auto renames = [] {
    const Scratch scratch;
    const UniqueFd directory = open_path(scratch.path().native(), O_PATH | O_DIRECTORY);
    put(scratch / "new/file", "x");
    put(scratch / "taken/file", "y");
    put(scratch / "file", "z");
    const auto rename = [&](const char* free) {
      return error_of([&] { rename_directory(directory.get(), "new", directory.get(), free); });
    };
    EXPECT_THAT(rename("taken"), testing::AnyOf(EEXIST, ENOTEMPTY));
    EXPECT_THAT(rename("file"), testing::AnyOf(EEXIST, ENOTDIR));
    EXPECT_THAT(tree(scratch.path()),
                ElementsAre("file", "new", "new/file", "taken", "taken/file"));
    EXPECT_EQ(rename("free"), 0);
    EXPECT_EQ(rename("again"), ENOENT);
    EXPECT_THAT(tree(scratch.path()),
                ElementsAre("file", "free", "free/file", "taken", "taken/file"));
  };
  renames();
  // As on FUSE and NFS.
  without_call(SYS_renameat2, EINVAL, 0, renames);
}

TEST(MakeDirectory, TellsMadeFromTaken) {
  const Scratch scratch;
  const UniqueFd directory = open_path(scratch.path().native(), O_PATH | O_DIRECTORY);
  put(scratch / "file", "x");
  fs::create_symlink("nowhere", scratch / "link");
  EXPECT_TRUE(make_directory(directory.get(), "new"));
  EXPECT_FALSE(make_directory(directory.get(), "new"));
  EXPECT_FALSE(make_directory(directory.get(), "file"));
  EXPECT_FALSE(make_directory(directory.get(), "link"));
  put(scratch / "new/child", "x");
  remove_empty_directory(directory.get(), "new");
  EXPECT_TRUE(fs::exists(scratch / "new/child"));
  fs::remove(scratch / "new/child");
  remove_empty_directory(directory.get(), "new");
  EXPECT_FALSE(fs::exists(scratch / "new"));
}

}  // namespace
}  // namespace casemate::sys
