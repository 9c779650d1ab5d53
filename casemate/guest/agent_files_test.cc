// Files of a call, refusals first. The guest is real, over plain directories.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/guest/agent_sandbox.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/plain_sandbox.h"

namespace casemate::guest {
namespace {

using namespace std::string_literals;
namespace fs = std::filesystem;

class AgentFiles : public testing::Test {
 protected:
  AgentFiles() : call_(plain_.sandbox().open_call({}, {})), work_(call_->directory() + "/work") {
    fs::create_directories(outside_ / "sub");
    put(outside_ / "secret.txt", "secret");
    put(outside_ / "sub/leaf.txt", "leaf");
  }

  static void put(const fs::path& path, std::string_view content) {
    std::ofstream(path, std::ios::binary) << content;
  }
  static std::string get(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static bool exists(const fs::path& path) {
    return fs::symlink_status(path).type() != fs::file_type::not_found;
  }

  void write(std::string_view path, std::string_view content) {
    call_->write_file(path, content, work_.string(), {});
  }
  std::optional<SandboxEntry> stat(std::string_view path) {
    return call_->stat_file(path, work_.string(), {});
  }
  std::string read(std::string_view path, std::uint64_t cap = 1 << 20) {
    return call_->read_file(path, work_.string(), cap, {});
  }
  void remove(std::string_view path, Recursive recursive = Recursive::no) {
    call_->remove(path, work_.string(), recursive, {});
  }
  std::vector<SandboxEntry> list(std::string_view path) {
    return call_->list_dir(path, work_.string(), {});
  }

  template <typename Act>
  static int error_of(Act act) {
    try {
      act();
    } catch (const SandboxFileError& error) {
      return error.error_number();
    }
    ADD_FAILURE() << "no SandboxFileError";
    return 0;
  }

  PlainSandbox plain_;
  std::unique_ptr<Call> call_;
  fs::path work_;
  // A sibling that shares a prefix with the working directory (FO-05).
  fs::path outside_{work_.string() + "-outside"};
};

// -- Every operation -----------------------------------------------------------------------------

TEST_F(AgentFiles, PathsOutsideAreRefusedByShape) {
  for (const std::string& path : {"../work-outside/secret.txt"s, outside_.string() + "/secret.txt",
                                  "a/../../x"s, "a\\b"s, "/etc/passwd"s, "a\0b"s}) {
    EXPECT_THROW(write(path, "x"), SandboxPathRefused);
    EXPECT_THROW(stat(path), SandboxPathRefused);
    EXPECT_THROW(read(path), SandboxPathRefused);
    EXPECT_THROW(remove(path), SandboxPathRefused);
    EXPECT_THROW(list(path), SandboxPathRefused);
  }
  EXPECT_THROW(call_->stat_file("x", "relative", {}), SandboxPathRefused);
  EXPECT_EQ(get(outside_ / "secret.txt"), "secret");
}

TEST_F(AgentFiles, PathsThroughALinkedParentAreRefused) {
  fs::create_directory_symlink(outside_, work_ / "link");
  EXPECT_THROW(write("link/new", "x"), SandboxPathRefused);
  EXPECT_THROW(write("link/new/deeper", "x"), SandboxPathRefused);
  EXPECT_THROW(stat("link/secret.txt"), SandboxPathRefused);
  EXPECT_THROW(read("link/secret.txt"), SandboxPathRefused);
  EXPECT_THROW(list("link/sub"), SandboxPathRefused);
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    EXPECT_THROW(remove("link/secret.txt", recursive), SandboxPathRefused);
    EXPECT_THROW(remove("link/sub", recursive), SandboxPathRefused);
  }
  EXPECT_FALSE(exists(outside_ / "new"));
  EXPECT_TRUE(exists(outside_ / "sub/leaf.txt"));
}

TEST_F(AgentFiles, ALinkedWorkingDirectoryOrAncestorIsRefused) {
  fs::create_directory_symlink(outside_, work_ / "linked");
  for (const std::string& directory :
       {(work_ / "linked").string(), (work_ / "linked/sub").string()}) {
    EXPECT_THROW(call_->write_file("f", std::string_view("x"), directory, {}), SandboxPathRefused);
    EXPECT_THROW(call_->stat_file("leaf.txt", directory, {}), SandboxPathRefused);
    EXPECT_THROW(call_->stat_file("", directory, {}), SandboxPathRefused);
    EXPECT_THROW(call_->read_file("leaf.txt", directory, 100, {}), SandboxPathRefused);
    EXPECT_THROW(call_->remove("leaf.txt", directory, Recursive::no, {}), SandboxPathRefused);
    EXPECT_THROW(call_->list_dir("", directory, {}), SandboxPathRefused);
  }
  EXPECT_FALSE(exists(outside_ / "f"));
}

TEST_F(AgentFiles, APlainParentIsNotADirectoryAndNoEscape) {
  put(work_ / "plain", "x");
  EXPECT_EQ(error_of([&] { write("plain/x", "y"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { stat("plain/x"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { read("plain/x"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { remove("plain/x"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { list("plain"); }), ENOTDIR);
  EXPECT_EQ(get(work_ / "plain"), "x");
}

TEST_F(AgentFiles, AbsolutePathsInsideAndDotsThatStayInsideAreFine) {
  write((work_ / "a").string(), "1");
  EXPECT_EQ(read("x/../a"), "1");
  EXPECT_EQ(stat("./a")->path, "a");
}

// NM-06: bytes are counted, and a name that is too long is a refusal.
TEST_F(AgentFiles, ANameOf255BytesIsFineAnd256AreNot) {
  const std::string longest(255, 'n');
  write(longest, "x");
  EXPECT_EQ(read(longest), "x");
  EXPECT_EQ(error_of([&] { write(longest + "n", "x"); }), ENAMETOOLONG);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += std::string(200, 'd') + "/";
  EXPECT_EQ(error_of([&] { write(deep + "f", "x"); }), ENAMETOOLONG);
}

TEST_F(AgentFiles, NamesOfAnyBytesAreOneNameAndNeverACommand) {
  for (const std::string& name : {"a\nb"s, "$(touch pwn)"s, "-rf"s, "*"s, "\xff\xfe"s, "a b;c"s,
                                  "x';touch pwn;'"s, "\x1b[2J"s}) {
    write(name, name);
    EXPECT_EQ(read(name), name);
    EXPECT_EQ(get(work_ / name), name);
  }
  EXPECT_EQ(list("").size(), 8U);
  EXPECT_FALSE(exists(work_ / "pwn"));
}

// -- write ---------------------------------------------------------------------------------------

TEST_F(AgentFiles, TheWorkingDirectoryItselfIsNotWritten) {
  for (const char* path : {"", ".", "a/.."}) EXPECT_THROW(write(path, "x"), SandboxPathRefused);
  EXPECT_THROW(write(work_.string(), "x"), SandboxPathRefused);
}

TEST_F(AgentFiles, ALinkedDestinationIsRefusedNotFollowed) {
  fs::create_symlink(outside_ / "secret.txt", work_ / "link");
  fs::create_symlink(outside_ / "new", work_ / "dangling");
  fs::create_directory_symlink(outside_, work_ / "directory");
  for (const char* name : {"link", "dangling", "directory"}) {
    EXPECT_THROW(write(name, "x"), SandboxPathRefused);
  }
  EXPECT_EQ(get(outside_ / "secret.txt"), "secret");
  EXPECT_FALSE(exists(outside_ / "new"));
}

TEST_F(AgentFiles, ADirectoryAFifoAndASocketAreNotWritten) {
  fs::create_directory(work_ / "directory");
  ASSERT_EQ(mkfifo((work_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { write("directory", "x"); }), EISDIR);
  EXPECT_EQ(error_of([&] { write("fifo", "x"); }), EINVAL);
}

// IN-06
TEST_F(AgentFiles, IN_06_BytesArriveAsTheyAre) {
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  for (const std::string& content :
       {every, ""s, "\r\n\xef\xbb\xbf"s, "aGVsbG8="s, "\0"s, std::string(64 * 1024, 'x'),
        std::string(64 * 1024 + 1, 'x'), std::string(10 << 20, '\xff')}) {
    write("f", content);
    EXPECT_TRUE(read("f", content.size()) == content);
    EXPECT_TRUE(get(work_ / "f") == content);
  }
}

TEST_F(AgentFiles, AWriteMakesParentsAndARegularFileOf0644) {
  write("a/b/c", "1");
  struct stat status{};
  ASSERT_EQ(::stat((work_ / "a/b/c").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFREG | 0644});
  ASSERT_EQ(::stat((work_ / "a/b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFDIR | 0755});
  call_->write_file("f", std::string_view("x"), (work_ / "new/directory").string(), {});
  EXPECT_EQ(get(work_ / "new/directory/f"), "x");
}

TEST_F(AgentFiles, ASecondWriteReplaces) {
  write("f", "long content");
  write("f", "short");
  EXPECT_EQ(read("f"), "short");
}

// -- stat ----------------------------------------------------------------------------------------

TEST_F(AgentFiles, StatTellsKindsAndSizesAndFollowsNothing) {
  write("file", "12345");
  fs::create_symlink("file", work_ / "link");
  fs::create_directory(work_ / "directory");
  ASSERT_EQ(mkfifo((work_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(stat("file"), (SandboxEntry{"file", EntryKind::file, 5}));
  EXPECT_EQ(stat("link"), (SandboxEntry{"link", EntryKind::symlink, {}}));
  EXPECT_EQ(stat("directory"), (SandboxEntry{"directory", EntryKind::directory, {}}));
  EXPECT_EQ(stat("fifo"), (SandboxEntry{"fifo", EntryKind::other, {}}));
  EXPECT_EQ(stat(""), (SandboxEntry{"", EntryKind::directory, {}}));
}

TEST_F(AgentFiles, WhatIsMissingIsAbsent) {
  EXPECT_FALSE(stat("missing"));
  EXPECT_FALSE(stat("missing/deeper"));
  EXPECT_FALSE(call_->stat_file("x", (work_ / "missing").string(), {}));
}

// -- read ----------------------------------------------------------------------------------------

TEST_F(AgentFiles, OnlyRegularFilesAreRead) {
  fs::create_symlink(outside_ / "secret.txt", work_ / "link");
  fs::create_directory(work_ / "directory");
  EXPECT_EQ(error_of([&] { read("link"); }), ELOOP);
  EXPECT_EQ(error_of([&] { read("missing"); }), ENOENT);
  EXPECT_EQ(error_of([&] { read("missing/deeper"); }), ENOENT);
  EXPECT_EQ(error_of([&] { read("directory"); }), EISDIR);
  EXPECT_EQ(error_of([&] { read(""); }), EISDIR);
  EXPECT_EQ(error_of([&] { call_->read_file("null", "/dev", 10, {}); }), EINVAL);
}

// Opening a FIFO for reading waits for a writer, unless told not to.
TEST_F(AgentFiles, AFifoNeverBlocksAReader) {
  ASSERT_EQ(mkfifo((work_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read("fifo"); }), EINVAL);
}

// FO-07
TEST_F(AgentFiles, FO_07_AFileOfExactlyTheCapIsReadAndOneByteMoreIsNot) {
  write("f", "12345");
  EXPECT_EQ(read("f", 5), "12345");
  expect_refusal<SandboxTransferCapExceeded>([&] { read("f", 4); }, {"'f'", "4 bytes"});
  write("empty", "");
  EXPECT_EQ(read("empty", 0), "");
  put(work_ / "big", "");
  fs::resize_file(work_ / "big", std::uintmax_t{1} << 40);
  EXPECT_THROW(read("big", 8 << 20), SandboxTransferCapExceeded);
  EXPECT_EQ(stat("big")->size_bytes, std::uint64_t{1} << 40);
}

// A file of /proc says that it is empty and has more: the kernel's own growing file.
TEST_F(AgentFiles, FO_07_AFileThatGrowsAfterTheStatStopsAtTheCap) {
  EXPECT_EQ(call_->stat_file("version", "/proc", {})->size_bytes, 0U);
  const std::string all = call_->read_file("version", "/proc", 1 << 20, {});
  EXPECT_FALSE(all.empty());
  EXPECT_EQ(call_->read_file("version", "/proc", all.size(), {}), all);
  EXPECT_THROW(call_->read_file("version", "/proc", all.size() - 1, {}),
               SandboxTransferCapExceeded);
}

// FO-03: whatever the moment, it is the guest's own file or a refusal.
TEST_F(AgentFiles, FO_03_AFileSwappedForALinkIsNeverFollowed) {
  std::atomic<bool> over = false;
  std::jthread swapper([&] {
    put(work_ / "real", "ok");
    while (!over) {
      fs::create_hard_link(work_ / "real", work_ / "t1");
      fs::rename(work_ / "t1", work_ / "out.txt");
      fs::create_symlink(outside_ / "secret.txt", work_ / "t2");
      fs::rename(work_ / "t2", work_ / "out.txt");
    }
  });
  int refused = 0;
  int read_whole = 0;
  for (int i = 0; i < 3000 && (i < 300 || refused == 0 || read_whole == 0); ++i) {
    try {
      EXPECT_EQ(read("out.txt"), "ok");
      ++read_whole;
    } catch (const SandboxFileError& error) {
      EXPECT_TRUE(error.error_number() == ELOOP || error.error_number() == ENOENT);
      ++refused;
    }
    try {
      write("out.txt", "ok");
    } catch (const SandboxPathRefused&) {
    }
  }
  over = true;
  EXPECT_GT(refused, 0);
  EXPECT_GT(read_whole, 0);
  EXPECT_EQ(get(outside_ / "secret.txt"), "secret");
}

// -- remove --------------------------------------------------------------------------------------

TEST_F(AgentFiles, RemoveTakesAFileAndNothingBesideIt) {
  write("a", "1");
  write("b", "2");
  remove("a");
  remove("a");  // missing is success
  remove("missing/deeper");
  EXPECT_FALSE(exists(work_ / "a"));
  EXPECT_EQ(read("b"), "2");
}

TEST_F(AgentFiles, ALinkIsRemovedNeverFollowed) {
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    fs::create_directory_symlink(outside_, work_ / "link");
    remove("link", recursive);
    EXPECT_FALSE(exists(work_ / "link"));
  }
  fs::create_directory(work_ / "tree");
  fs::create_directory_symlink(outside_, work_ / "tree/link");
  remove("tree", Recursive::yes);
  EXPECT_FALSE(exists(work_ / "tree"));
  EXPECT_TRUE(exists(outside_ / "sub/leaf.txt"));
}

TEST_F(AgentFiles, ADirectoryNeedsRecursiveAlsoWhenEmpty) {
  fs::create_directories(work_ / "full/er");
  fs::create_directory(work_ / "empty");
  EXPECT_EQ(error_of([&] { remove("full"); }), EISDIR);
  EXPECT_EQ(error_of([&] { remove("empty"); }), EISDIR);
  remove("full", Recursive::yes);
  remove("empty", Recursive::yes);
  EXPECT_TRUE(fs::is_empty(work_));
}

TEST_F(AgentFiles, TheWorkingDirectoryItselfIsNotRemoved) {
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    EXPECT_THROW(remove("", recursive), SandboxPathRefused);
    EXPECT_THROW(remove(".", recursive), SandboxPathRefused);
  }
  EXPECT_TRUE(exists(work_));
}

// -- list ----------------------------------------------------------------------------------------

TEST_F(AgentFiles, AListingIsSortedOneLevelAndNamesLinksAsLinks) {
  write("d/b", "22");
  write("d/a", "1");
  write("d/sub/x", "");
  fs::create_directory_symlink(outside_, work_ / "d/link");
  const std::vector<SandboxEntry> expected{{"d/a", EntryKind::file, 1},
                                           {"d/b", EntryKind::file, 2},
                                           {"d/link", EntryKind::symlink, {}},
                                           {"d/sub", EntryKind::directory, {}}};
  EXPECT_EQ(list("d"), expected);
  EXPECT_EQ(list("").size(), 1U);
  EXPECT_TRUE(list("d/sub").size() == 1);
}

TEST_F(AgentFiles, ALinkedDirectoryIsNotListedAndAMissingOneIsENOENT) {
  fs::create_directory_symlink(outside_, work_ / "link");
  EXPECT_THROW(list("link"), SandboxPathRefused);
  EXPECT_EQ(error_of([&] { list("missing"); }), ENOENT);
}

TEST_F(AgentFiles, AListingOfExactlyTheCapPassesAndOneMoreIsRefused) {
  const fs::path many = work_ / "many";
  fs::create_directory(many);
  put(many / "0", "");
  for (int i = 1; i < 100'000; ++i) {
    ASSERT_EQ(link((many / "0").c_str(), (many / std::to_string(i)).c_str()), 0);
  }
  EXPECT_EQ(list("many").size(), 100'000U);
  put(many / "more", "");
  expect_refusal<SandboxTransferCapExceeded>([&] { list("many"); }, "100000");
  EXPECT_EQ(list("").size(), 1U);  // the connection goes on
}

// -- Together ------------------------------------------------------------------------------------

TEST_F(AgentFiles, AnOperationAfterARefusalWorks) {
  write("f", "12345");
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(read("f", 1), SandboxTransferCapExceeded);
    EXPECT_THROW(read("missing"), SandboxFileError);
    EXPECT_EQ(read("f"), "12345");
  }
}

TEST_F(AgentFiles, ThreadsHaveConnectionsOfTheirOwn) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "f" + std::to_string(i);
      for (int round = 0; round < 20; ++round) {
        const std::string content(static_cast<std::size_t>(round) * 10'000,
                                  static_cast<char>('a' + i));
        write(name, content);
        EXPECT_TRUE(read(name) == content);
      }
    });
  }
}

}  // namespace
}  // namespace casemate::guest
