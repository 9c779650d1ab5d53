#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "casemate/core/errors.h"
#include "casemate/sys/without_call_test.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/no_throw.h"
#include "tests/support/scratch.h"

namespace casemate {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Artifact artifact(std::string name, std::string content = "new") {
  return {std::move(name), std::move(content), "report", std::nullopt};
}

class Sink : public testing::Test {
 protected:
  Sink() { fs::create_directory(root_); }

  // The text of the refusal, which never names a path of the host.
  template <typename Refused>
  std::string refusal(const std::vector<Artifact>& batch, std::string_view part,
                      Overwrite overwrite = Overwrite::no) {
    const auto sink = make_file_system_sink(root_, {.overwrite = overwrite});
    const std::string text = expect_refusal<Refused>([&] { sink->deliver_all(batch); }, part);
    EXPECT_THAT(text, Not(HasSubstr(scratch_.path().native())));
    return text;
  }

  Scratch scratch_;
  fs::path root_ = scratch_ / "out";
};

TEST_F(Sink, LandsTheBytesUnderTheirName) {
  std::string bytes = "\r\n";
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i);
  }
  const auto sink = make_file_system_sink(root_);
  EXPECT_EQ(sink->deliver(artifact("plots/2024/a.bin", bytes)),
            (LandedArtifact{"plots/2024/a.bin", "plots/2024/a.bin (258 bytes)",
                            (root_ / "plots/2024/a.bin").string(), 258}));
  EXPECT_EQ(get(root_ / "plots/2024/a.bin"), bytes);
  EXPECT_EQ(sink->deliver(artifact("empty", "")).display, "empty (0 bytes)");
  EXPECT_EQ(sink->deliver(artifact("one", "1")).display, "one (1 byte)");
  EXPECT_THAT(tree(root_), ElementsAre("empty", "one", "plots", "plots/2024", "plots/2024/a.bin"));
  EXPECT_EQ(sink->normalization(), NameNormalization::nfc);
}

// FO-13
TEST_F(Sink, LandsEqualBaseNamesBesideEachOther) {
  const auto sink = make_file_system_sink(root_);
  sink->deliver_all(std::vector{artifact("a/x.txt", "1"), artifact("b/x.txt", "2")});
  EXPECT_EQ(get(root_ / "a/x.txt"), "1");
  EXPECT_EQ(get(root_ / "b/x.txt"), "2");
}

// NM-04
TEST_F(Sink, ShowsNamesEscapedOrAsTheHostSays) {
  const auto sink = make_file_system_sink(root_);
  EXPECT_THAT(sink->deliver(artifact("a\u200b.txt")).display, HasSubstr("\\u{200b}"));
  const auto own = make_file_system_sink(
      root_, {.display = [](const Artifact& landed) { return "see " + landed.name; }});
  EXPECT_EQ(own->deliver(artifact("b")).display, "see b");
}

TEST_F(Sink, LandsNothingWhenTheHostsDisplayThrows) {
  const auto sink = make_file_system_sink(
      root_, {.display = [](const Artifact&) -> std::string { throw std::logic_error("x"); }});
  EXPECT_THROW(sink->deliver(artifact("a")), std::logic_error);
  EXPECT_THAT(tree(root_), IsEmpty());
}

TEST_F(Sink, TakesModesFromTheUmaskLikeAnOrdinaryProgram) {
  make_file_system_sink(root_)->deliver(artifact("d/f"));
  put(root_ / "ordinary/f", "x");
  EXPECT_EQ(fs::status(root_ / "d/f").permissions(),
            fs::status(root_ / "ordinary/f").permissions());
  EXPECT_EQ(fs::status(root_ / "d").permissions(), fs::status(root_ / "ordinary").permissions());
}

TEST_F(Sink, NeverOverwritesUnlessTold) {
  put(root_ / "file", "old");
  fs::create_symlink("nowhere", root_ / "dangling");
  fs::create_directory(root_ / "directory");
  refusal<SandboxLandingExists>({artifact("file")}, "\"file\" is already there");
  refusal<SandboxLandingExists>({artifact("dangling")}, "already there");
  refusal<SandboxLandingExists>({artifact("directory")}, "as a directory");
  refusal<SandboxLandingExists>({artifact("file/below")}, "needs a directory");
  EXPECT_EQ(get(root_ / "file"), "old");
  EXPECT_THAT(tree(root_), ElementsAre("dangling", "directory", "file"));
}

TEST_F(Sink, OverwritesFilesAndLinksThemselvesWhenTold) {
  put(root_ / "file", "old");
  put(scratch_ / "target", "target");
  fs::create_symlink("../target", root_ / "link");
  const auto sink = make_file_system_sink(root_, {.overwrite = Overwrite::yes});
  sink->deliver_all(std::vector{artifact("file"), artifact("link"), artifact("fresh")});
  EXPECT_EQ(get(root_ / "file"), "new");
  EXPECT_EQ(get(root_ / "link"), "new");
  EXPECT_FALSE(fs::is_symlink(root_ / "link"));
  EXPECT_EQ(get(scratch_ / "target"), "target");
  EXPECT_THAT(tree(root_), ElementsAre("file", "fresh", "link"));
}

TEST_F(Sink, OverwritesNoDirectoryAndNothingInADirectorysPlace) {
  put(root_ / "directory/kept", "x");
  put(root_ / "file", "old");
  refusal<SandboxLandingExists>({artifact("directory")}, "as a directory", Overwrite::yes);
  refusal<SandboxLandingExists>({artifact("file/below")}, "needs a directory", Overwrite::yes);
  EXPECT_THAT(tree(root_), ElementsAre("directory", "directory/kept", "file"));
  EXPECT_EQ(get(root_ / "file"), "old");
}

// FO-05
TEST_F(Sink, FollowsNoLinkBelowItsRoot) {
  fs::create_directory(scratch_ / "out-evil");
  fs::create_directory_symlink("../out-evil", root_ / "evil");
  fs::create_directory_symlink(".", root_ / "self");
  for (const Overwrite overwrite : {Overwrite::no, Overwrite::yes}) {
    refusal<SandboxLandingNotConfined>({artifact("evil/x")}, "through a link", overwrite);
    refusal<SandboxLandingNotConfined>({artifact("evil/d/x")}, "through a link", overwrite);
    refusal<SandboxLandingNotConfined>({artifact("self/x")}, "through a link", overwrite);
  }
  EXPECT_THAT(tree(scratch_ / "out-evil"), IsEmpty());
  EXPECT_THAT(tree(root_), ElementsAre("evil", "self"));
}

// FO-05
TEST_F(Sink, RefusesNamesThatLeadOutside) {
  for (const char* name : {"../out-evil/x", "/etc/casemate-test", "..", "a/../../x"}) {
    refusal<SandboxLandingNotConfined>({artifact(name)}, "file name");
  }
  for (const char* name : {"", ".", "a//b", "a\\b", "a\n"}) {
    refusal<SandboxArtifactNameInvalid>({artifact(name)}, "file name");
  }
  EXPECT_THAT(tree(scratch_.path()), ElementsAre("out"));
}

TEST_F(Sink, AComponentSwappedForALinkBetweenTwoCallsIsRefused) {
  const auto sink = make_file_system_sink(root_);
  fs::create_directory(scratch_ / "outside");
  sink->deliver(artifact("d/a"));
  fs::rename(root_ / "d", root_ / "moved");
  fs::create_directory_symlink("../outside", root_ / "d");
  expect_refusal<SandboxLandingNotConfined>([&] { sink->deliver(artifact("d/b")); },
                                            "through a link");
  EXPECT_THAT(tree(scratch_ / "outside"), IsEmpty());
}

TEST_F(Sink, WritesToTheDirectoryItWasMadeForEvenWhenThatIsRenamed) {
  const auto sink = make_file_system_sink(root_);
  fs::create_directory(scratch_ / "outside");
  fs::rename(root_, scratch_ / "renamed");
  fs::create_directory_symlink("outside", root_);
  EXPECT_EQ(sink->deliver(artifact("a")).handle, (scratch_ / "renamed/a").native());
  EXPECT_THAT(tree(scratch_ / "outside"), IsEmpty());
  EXPECT_EQ(get(scratch_ / "renamed/a"), "new");
}

TEST_F(Sink, SaysThatTheDirectoryItWasMadeForIsGone) {
  const auto sink = make_file_system_sink(root_);
  fs::remove(root_);
  expect_refusal<SandboxFileError>([&] { sink->deliver(artifact("a")); }, "was removed");
}

TEST_F(Sink, AComponentSwappedForALinkDuringDeliveryNeverLetsAFileOut) {
  fs::create_directory(scratch_ / "outside");
  fs::create_directory(root_ / "d");
  fs::create_directory_symlink("../outside", root_ / "link");
  const auto sink = make_file_system_sink(root_, {.overwrite = Overwrite::yes});
  std::atomic<bool> done = false;
  std::thread swapper([&] {
    while (!done) {
      renameat2(AT_FDCWD, (root_ / "d").c_str(), AT_FDCWD, (root_ / "link").c_str(),
                RENAME_EXCHANGE);
    }
  });
  int landed = 0;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    try {
      sink->deliver(artifact("d/f" + std::to_string(i % 3)));
      ++landed;
    } catch (const SandboxLandingNotConfined&) {
      ++refused;
    }
  }
  done = true;
  swapper.join();
  EXPECT_EQ(landed + refused, 200);
  EXPECT_THAT(tree(scratch_ / "outside"), IsEmpty());
}

TEST_F(Sink, LandsAllOfABatchOrNone) {
  put(root_ / "b", "old");
  refusal<SandboxLandingExists>({artifact("x/y/a"), artifact("b"), artifact("c")}, "\"b\"");
  EXPECT_THAT(tree(root_), ElementsAre("b"));
  EXPECT_EQ(get(root_ / "b"), "old");
  EXPECT_TRUE(make_file_system_sink(root_)->lands_all_or_none());
}

TEST_F(Sink, RemovesWhatAKilledHostLeftInTheDirectoriesItLandsIn) {
  put(root_ / "d/.casemate-0123456789abcdef", "left");
  put(root_ / ".casemate-0123456789abcdef", "left");
  put(root_ / "elsewhere/.casemate-0123456789abcdef", "left");
  make_file_system_sink(root_)->deliver(artifact("d/x"));
  EXPECT_THAT(tree(root_),
              ElementsAre("d", "d/x", "elsewhere", "elsewhere/.casemate-0123456789abcdef"));
}

TEST_F(Sink, TakesBackWhatWasLinkedWhenALaterOneFails) {
  put(root_ / "b", "old");
  // "a" and "x/a" need no rename; the exchange with "b" does.
  sys::without_call(SYS_renameat2, EIO, 0, [&] {
    const auto sink = make_file_system_sink(root_, {.overwrite = Overwrite::yes});
    expect_refusal<SandboxFileError>(
        [&] { sink->deliver_all(std::vector{artifact("a"), artifact("x/a"), artifact("b")}); },
        "\"b\" could not be saved");
  });
  EXPECT_THAT(tree(root_), ElementsAre("b"));
  EXPECT_EQ(get(root_ / "b"), "old");
}

TEST_F(Sink, PutsBackWhatItReplacedWhenALaterStepFails) {
  put(root_ / "a", "old");
  const auto sink = make_file_system_sink(root_, {.overwrite = Overwrite::yes});
  // The last step opens each directory to sync it, and fails here when all names are given.
  sys::without_call(SYS_openat, EOPNOTSUPP, O_DIRECTORY, [&] {
    expect_refusal<SandboxFileError>(
        [&] { sink->deliver_all(std::vector{artifact("a"), artifact("x/b")}); },
        "could not be saved");
  });
  EXPECT_THAT(tree(root_), ElementsAre("a"));
  EXPECT_EQ(get(root_ / "a"), "old");
}

TEST_F(Sink, RefusesABatchWhoseNamesAreOneFile) {
  for (const Overwrite overwrite : {Overwrite::no, Overwrite::yes}) {
    refusal<SandboxArtifactNameCollision>({artifact("a"), artifact("a")}, "given twice", overwrite);
    refusal<SandboxArtifactNameCollision>({artifact("a"), artifact("A")}, "letter case", overwrite);
    refusal<SandboxArtifactNameCollision>({artifact("a"), artifact("a/b")}, "directory of",
                                          overwrite);
  }
  EXPECT_THAT(tree(root_), IsEmpty());
}

TEST_F(Sink, LandsAnEmptyBatch) {
  EXPECT_THAT(make_file_system_sink(root_)->deliver_all({}), IsEmpty());
  EXPECT_THAT(tree(root_), IsEmpty());
}

TEST_F(Sink, LandsABatchLargerThanItsShareOfDescriptors) {
  std::vector<Artifact> batch;
  for (int i = 0; i < 70; ++i) {
    batch.push_back(artifact("d/f" + std::to_string(i), std::to_string(i)));
  }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 50;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  try {
    EXPECT_EQ(make_file_system_sink(root_)->deliver_all(batch).size(), 70U);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(tree(root_).size(), 71U);
  EXPECT_EQ(get(root_ / "d/f69"), "69");
}

TEST_F(Sink, MakesItsRootAndFollowsTheOperatorsLinkToIt) {
  const auto made = make_file_system_sink(scratch_ / "new/root");
  made->deliver(artifact("a"));
  EXPECT_EQ(get(scratch_ / "new/root/a"), "new");
  fs::create_directory_symlink("out", scratch_ / "link");
  const auto linked = make_file_system_sink(scratch_ / "link");
  EXPECT_EQ(linked->root(), root_);
}

TEST_F(Sink, RefusesARootThatIsNoDirectory) {
  put(scratch_ / "file", "x");
  expect_refusal<InvalidArgument>([&] { make_file_system_sink(scratch_ / "file"); },
                                  (scratch_ / "file").native());
  expect_refusal<InvalidArgument>([&] { make_file_system_sink(scratch_ / "file/below"); },
                                  "cannot be created");
  fs::create_symlink("nowhere/at/all", scratch_ / "dangling");
  expect_refusal<InvalidArgument>([&] { make_file_system_sink(scratch_ / "dangling"); },
                                  "is a link to nothing");
  fs::create_symlink("loop", scratch_ / "loop");
  expect_refusal<InvalidArgument>([&] { make_file_system_sink(scratch_ / "loop"); },
                                  "is a link to nothing");
  expect_refusal<InvalidArgument>([&] { make_file_system_sink(scratch_ / "loop/below"); },
                                  "symbolic links");
}

// Runs `body` with a tmpfs of `options` on `directory`, in a mount namespace of the thread's own.
void on_small_disk(const fs::path& directory, const char* options,
                   const std::function<void()>& body) {
  std::thread thread([&] {
    ASSERT_EQ(unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(mount("tmpfs", directory.c_str(), "tmpfs", 0, options), 0);
    no_throw(body);
  });
  thread.join();
}

TEST_F(Sink, ABatchThatGoesBackTakesNoDirectoryFromAnotherThreads) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "mounting a disk that is quick to sync needs root";
  }
  on_small_disk(root_, "size=1m", [&] {
    put(root_ / "taken", "x");
    const auto sink = make_file_system_sink(root_);
    std::atomic<bool> done = false;
    std::thread failing([&] {
      no_throw([&] {
        while (!done) {
          // Makes d, unless it is there, and removes it again. That the main thread's removal falls
          // between the two and makes for another refusal is no fault.
          EXPECT_THROW(sink->deliver_all(std::vector{artifact("d/a"), artifact("taken")}),
                       SandboxError);
        }
      });
    });
    std::string failure;
    for (int i = 0; i < 3000 && failure.empty(); ++i) {
      try {
        sink->deliver(artifact("d/b"));
      } catch (const std::exception& error) {
        failure = error.what();
      }
      std::error_code error;
      fs::remove_all(root_ / "d", error);
      if (error) failure = error.message();
    }
    done = true;
    failing.join();
    EXPECT_EQ(failure, "");
  });
}

TEST_F(Sink, LeavesNothingOnADiskThatIsFull) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  on_small_disk(root_, "size=64k", [&] {
    put(root_ / "old", "old");
    for (const Overwrite overwrite : {Overwrite::no, Overwrite::yes}) {
      const auto sink = make_file_system_sink(root_, {.overwrite = overwrite});
      try {
        sink->deliver_all(std::vector{artifact("a", std::string(20000, 'x')), artifact("d/old"),
                                      artifact("b", std::string(60000, 'x'))});
        ADD_FAILURE() << "60,000 bytes more fitted";
      } catch (const SandboxFileError& error) {
        EXPECT_EQ(error.error_number(), ENOSPC);
        EXPECT_THAT(error.message(), HasSubstr("\"b\" could not be saved: No space left"));
      }
      EXPECT_THAT(tree(root_), ElementsAre("old"));
      EXPECT_EQ(get(root_ / "old"), "old");
    }
    // The space is there again.
    make_file_system_sink(root_)->deliver(artifact("c", std::string(40000, 'x')));
  });
}

TEST_F(Sink, LeavesNothingOnADiskWithoutInodes) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  on_small_disk(root_, "nr_inodes=4", [&] {
    const auto sink = make_file_system_sink(root_);
    expect_refusal<SandboxFileError>(
        [&] {
          sink->deliver_all(std::vector{artifact("d/e/a"), artifact("d/e/b"), artifact("d/e/c")});
        },
        "No space left");
    EXPECT_THAT(tree(root_), IsEmpty());
  });
}

TEST_F(Sink, RefusesADiskThatIsReadOnly) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "mounting a disk needs root";
  }
  on_small_disk(root_, "size=64k", [&] {
    put(root_ / "d/x", "x");
    ASSERT_EQ(mount(nullptr, root_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const auto sink = make_file_system_sink(root_);
    for (const char* name : {"a", "d/a", "new/a"}) {
      expect_refusal<SandboxFileError>([&] { sink->deliver(artifact(name)); },
                                       "Read-only file system");
    }
  });
}

// -- Overlap --

class Overlap : public Sink {
 protected:
  void expect_overlap(const fs::path& out, const fs::path& in) {
    const auto sink = make_file_system_sink(scratch_ / out);
    const DirectoryFileStore store(scratch_ / in);
    expect_refusal<InvalidArgument>([&] { refuse_overlap(*sink, store); },
                                    "the same or lie in one another");
    EXPECT_NO_THROW(refuse_overlap(*sink, store, UnsafeSharedStore{}));
  }
};

TEST_F(Overlap, IsRefusedForEqualAndNestedDirectories) {
  fs::create_directories(scratch_ / "out/sub/deep");
  fs::create_directory_symlink("out/sub", scratch_ / "link");
  expect_overlap("out", "out");
  expect_overlap("out", "out/sub/deep");
  expect_overlap("out/sub/deep", "out");
  expect_overlap("link", "out");
  expect_overlap("out", "link");
  expect_overlap("out/sub/../sub", "link");
}

// FO-05
TEST_F(Overlap, IsNotSeenInDirectoriesThatShareTheFirstLetters) {
  fs::create_directory(scratch_ / "out-evil");
  EXPECT_NO_THROW(
      refuse_overlap(*make_file_system_sink(root_), DirectoryFileStore(scratch_ / "out-evil")));
  EXPECT_NO_THROW(
      refuse_overlap(*make_file_system_sink(scratch_ / "out-evil"), DirectoryFileStore(root_)));
}

TEST_F(Overlap, IsTheHostsDutyForOtherStores) {
  EXPECT_NO_THROW(refuse_overlap(*make_file_system_sink(root_), InMemoryStore({})));
}

}  // namespace
}  // namespace casemate
