// Files of a call, refusals first.

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/seam/seam.h"
#include "tests/support/expect_refusal.h"

namespace casemate::seam {
namespace {

using namespace std::string_literals;

class Files : public Seam {
 protected:
  void SetUp() override {
    Seam::SetUp();
    if (IsSkipped()) return;
    // A sibling that shares a prefix with the working directory (FO-05).
    guest(
        "mkdir -p ../work-outside/sub; cd ../work-outside; printf secret > secret.txt; "
        "printf leaf > sub/leaf.txt");
  }
  std::string outside() const { return work() + "-outside"; }

  bool exists(const std::string& path) {
    return run(shell("[ -e " + path + " ] || [ -L " + path + " ]")).exit_code == 0;
  }

  void write(std::string_view path, std::string_view content) {
    call().write_file(path, content, work(), {});
  }
  std::optional<SandboxEntry> stat(std::string_view path) {
    return call().stat_file(path, work(), {});
  }
  std::string read(std::string_view path, std::uint64_t cap = 1 << 20) {
    return call().read_file(path, work(), cap, {});
  }
  void remove(std::string_view path, Recursive recursive = Recursive::no) {
    call().remove(path, work(), recursive, {});
  }
  std::vector<SandboxEntry> list(std::string_view path) {
    return call().list_dir(path, work(), {});
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
};

INSTANTIATE_TEST_SUITE_P(Every, Files, testing::ValuesIn(providers()), provider_name);

// -- Every operation -----------------------------------------------------------------------------

TEST_P(Files, PathsOutsideAreRefusedByShape) {
  for (const std::string& path : {"../work-outside/secret.txt"s, outside() + "/secret.txt",
                                  "a/../../x"s, "a\\b"s, "/etc/passwd"s, "a\0b"s}) {
    EXPECT_THROW(write(path, "x"), SandboxPathRefused);
    EXPECT_THROW(stat(path), SandboxPathRefused);
    EXPECT_THROW(read(path), SandboxPathRefused);
    EXPECT_THROW(remove(path), SandboxPathRefused);
    EXPECT_THROW(list(path), SandboxPathRefused);
  }
  EXPECT_THROW(call().stat_file("x", "relative", {}), SandboxPathRefused);
  EXPECT_EQ(guest("cat ../work-outside/secret.txt"), "secret");
}

TEST_P(Files, PathsThroughALinkedParentAreRefused) {
  guest("ln -s ../work-outside link");
  EXPECT_THROW(write("link/new", "x"), SandboxPathRefused);
  EXPECT_THROW(write("link/new/deeper", "x"), SandboxPathRefused);
  EXPECT_THROW(stat("link/secret.txt"), SandboxPathRefused);
  EXPECT_THROW(read("link/secret.txt"), SandboxPathRefused);
  EXPECT_THROW(list("link/sub"), SandboxPathRefused);
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    EXPECT_THROW(remove("link/secret.txt", recursive), SandboxPathRefused);
    EXPECT_THROW(remove("link/sub", recursive), SandboxPathRefused);
  }
  EXPECT_FALSE(exists("../work-outside/new"));
  EXPECT_TRUE(exists("../work-outside/sub/leaf.txt"));
}

TEST_P(Files, ALinkedWorkingDirectoryOrAncestorIsRefused) {
  guest("ln -s ../work-outside linked");
  for (const std::string& directory : {work() + "/linked", work() + "/linked/sub"}) {
    EXPECT_THROW(call().write_file("f", std::string_view("x"), directory, {}), SandboxPathRefused);
    EXPECT_THROW(call().stat_file("leaf.txt", directory, {}), SandboxPathRefused);
    EXPECT_THROW(call().stat_file("", directory, {}), SandboxPathRefused);
    EXPECT_THROW(call().read_file("leaf.txt", directory, 100, {}), SandboxPathRefused);
    EXPECT_THROW(call().remove("leaf.txt", directory, Recursive::no, {}), SandboxPathRefused);
    EXPECT_THROW(call().list_dir("", directory, {}), SandboxPathRefused);
  }
  EXPECT_FALSE(exists("../work-outside/f"));
}

TEST_P(Files, APlainParentIsNotADirectoryAndNoEscape) {
  guest("printf x > plain");
  EXPECT_EQ(error_of([&] { write("plain/x", "y"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { stat("plain/x"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { read("plain/x"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { remove("plain/x"); }), ENOTDIR);
  EXPECT_EQ(error_of([&] { list("plain"); }), ENOTDIR);
  EXPECT_EQ(guest("cat plain"), "x");
}

TEST_P(Files, AbsolutePathsInsideAndDotsThatStayInsideAreFine) {
  write(work() + "/a", "1");
  EXPECT_EQ(read("x/../a"), "1");
  EXPECT_EQ(stat("./a")->path, "a");
}

// NM-06: bytes are counted, and a name that is too long is a refusal.
TEST_P(Files, ANameOf255BytesIsFineAnd256AreNot) {
  const std::string longest(255, 'n');
  write(longest, "x");
  EXPECT_EQ(read(longest), "x");
  EXPECT_EQ(error_of([&] { write(longest + "n", "x"); }), ENAMETOOLONG);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += std::string(200, 'd') + "/";
  EXPECT_EQ(error_of([&] { write(deep + "f", "x"); }), ENAMETOOLONG);
}

TEST_P(Files, NamesOfAnyBytesAreOneNameAndNeverACommand) {
  for (const std::string& name : {"a\nb"s, "$(touch pwn)"s, "-rf"s, "*"s, "\xff\xfe"s, "a b;c"s,
                                  "x';touch pwn;'"s, "\x1b[2J"s}) {
    write(name, name);
    EXPECT_EQ(read(name), name);
    EXPECT_EQ(run(program({"/bin/cat", "./" + name})).stdout, name);
  }
  EXPECT_EQ(list("").size(), 8U);
  EXPECT_FALSE(exists("pwn"));
}

// -- write ---------------------------------------------------------------------------------------

TEST_P(Files, TheWorkingDirectoryItselfIsNotWritten) {
  for (const char* path : {"", ".", "a/.."}) EXPECT_THROW(write(path, "x"), SandboxPathRefused);
  EXPECT_THROW(write(work(), "x"), SandboxPathRefused);
}

TEST_P(Files, ALinkedDestinationIsRefusedNotFollowed) {
  guest("ln -s ../work-outside/secret.txt link");
  guest("ln -s ../work-outside/new dangling");
  guest("ln -s ../work-outside directory");
  for (const char* name : {"link", "dangling", "directory"}) {
    EXPECT_THROW(write(name, "x"), SandboxPathRefused);
  }
  EXPECT_EQ(guest("cat ../work-outside/secret.txt"), "secret");
  EXPECT_FALSE(exists("../work-outside/new"));
}

TEST_P(Files, ADirectoryAFifoAndASocketAreNotWritten) {
  guest("mkdir directory");
  guest("mkfifo fifo");
  EXPECT_EQ(error_of([&] { write("directory", "x"); }), EISDIR);
  EXPECT_EQ(error_of([&] { write("fifo", "x"); }), EINVAL);
}

// IN-06
TEST_P(Files, IN_06_BytesArriveAsTheyAre) {
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  for (const std::string& content :
       {every, ""s, "\r\n\xef\xbb\xbf"s, "aGVsbG8="s, "\0"s, std::string(64 * 1024, 'x'),
        std::string(64 * 1024 + 1, 'x'), std::string(10 << 20, '\xff')}) {
    write("f", content);
    EXPECT_TRUE(read("f", content.size()) == content);
    EXPECT_EQ(guest("wc -c < f"), std::to_string(content.size()) + "\n");
  }
}

TEST_P(Files, AWriteMakesParentsAndARegularFileOf0644) {
  write("a/b/c", "1");
  EXPECT_EQ(guest("stat -c '%F %a' a/b/c a/b"), "regular file 644\ndirectory 755\n");
  call().write_file("f", std::string_view("x"), work() + "/new/directory", {});
  EXPECT_EQ(guest("cat new/directory/f"), "x");
}

TEST_P(Files, ASecondWriteReplaces) {
  write("f", "long content");
  write("f", "short");
  EXPECT_EQ(read("f"), "short");
}

// -- stat ----------------------------------------------------------------------------------------

TEST_P(Files, StatTellsKindsAndSizesAndFollowsNothing) {
  write("file", "12345");
  guest("ln -s file link");
  guest("mkdir directory");
  guest("mkfifo fifo");
  EXPECT_EQ(stat("file"), (SandboxEntry{"file", EntryKind::file, 5}));
  EXPECT_EQ(stat("link"), (SandboxEntry{"link", EntryKind::symlink, {}}));
  EXPECT_EQ(stat("directory"), (SandboxEntry{"directory", EntryKind::directory, {}}));
  EXPECT_EQ(stat("fifo"), (SandboxEntry{"fifo", EntryKind::other, {}}));
  EXPECT_EQ(stat(""), (SandboxEntry{"", EntryKind::directory, {}}));
}

TEST_P(Files, WhatIsMissingIsAbsent) {
  EXPECT_FALSE(stat("missing"));
  EXPECT_FALSE(stat("missing/deeper"));
  EXPECT_FALSE(call().stat_file("x", work() + "/missing", {}));
}

// -- read ----------------------------------------------------------------------------------------

TEST_P(Files, OnlyRegularFilesAreRead) {
  guest("ln -s ../work-outside/secret.txt link");
  guest("mkdir directory");
  EXPECT_EQ(error_of([&] { read("link"); }), ELOOP);
  EXPECT_EQ(error_of([&] { read("missing"); }), ENOENT);
  EXPECT_EQ(error_of([&] { read("missing/deeper"); }), ENOENT);
  EXPECT_EQ(error_of([&] { read("directory"); }), EISDIR);
  EXPECT_EQ(error_of([&] { read(""); }), EISDIR);
  EXPECT_EQ(error_of([&] { call().read_file("null", "/dev", 10, {}); }), EINVAL);
}

// Opening a FIFO for reading waits for a writer, unless told not to.
TEST_P(Files, AFifoNeverBlocksAReader) {
  guest("mkfifo fifo");
  EXPECT_EQ(error_of([&] { read("fifo"); }), EINVAL);
}

// FO-07
TEST_P(Files, FO_07_AFileOfExactlyTheCapIsReadAndOneByteMoreIsNot) {
  write("f", "12345");
  EXPECT_EQ(read("f", 5), "12345");
  expect_refusal<SandboxTransferCapExceeded>([&] { read("f", 4); }, {"'f'", "4 bytes"});
  write("empty", "");
  EXPECT_EQ(read("empty", 0), "");
  guest("truncate -s 1T big");
  EXPECT_THROW(read("big", 8 << 20), SandboxTransferCapExceeded);
  EXPECT_EQ(stat("big")->size_bytes, std::uint64_t{1} << 40);
}

// A file of /proc says that it is empty and has more: the kernel's own growing file.
TEST_P(Files, FO_07_AFileThatGrowsAfterTheStatStopsAtTheCap) {
  EXPECT_EQ(call().stat_file("version", "/proc", {})->size_bytes, 0U);
  const std::string all = call().read_file("version", "/proc", 1 << 20, {});
  EXPECT_FALSE(all.empty());
  EXPECT_EQ(call().read_file("version", "/proc", all.size(), {}), all);
  EXPECT_THROW(call().read_file("version", "/proc", all.size() - 1, {}),
               SandboxTransferCapExceeded);
}

// FO-03: whatever the moment, it is the guest's own file or a refusal.
TEST_P(Files, FO_03_AFileSwappedForALinkIsNeverFollowed) {
  const std::unique_ptr<Process> swapper = call().start(python(R"(
import os
open('real', 'w').write('ok')
open('ready', 'w').write('ready')
while True:
    os.link('real', 't1'); os.replace('t1', 'out.txt')
    os.symlink('../work-outside/secret.txt', 't2'); os.replace('t2', 'out.txt')
)"),
                                                        {});
  awaited("ready");
  int refused = 0;
  int read_whole = 0;
  for (int i = 0; i < 20'000 && (i < 300 || refused == 0 || read_whole == 0); ++i) {
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
  EXPECT_GT(refused, 0);
  EXPECT_GT(read_whole, 0);
  EXPECT_EQ(guest("cat ../work-outside/secret.txt"), "secret");
}

// -- remove --------------------------------------------------------------------------------------

TEST_P(Files, RemoveTakesAFileAndNothingBesideIt) {
  write("a", "1");
  write("b", "2");
  remove("a");
  remove("a");  // missing is success
  remove("missing/deeper");
  EXPECT_FALSE(exists("a"));
  EXPECT_EQ(read("b"), "2");
}

TEST_P(Files, ALinkIsRemovedNeverFollowed) {
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    guest("ln -s ../work-outside link");
    remove("link", recursive);
    EXPECT_FALSE(exists("link"));
  }
  guest("mkdir tree");
  guest("ln -s ../work-outside tree/link");
  remove("tree", Recursive::yes);
  EXPECT_FALSE(exists("tree"));
  EXPECT_TRUE(exists("../work-outside/sub/leaf.txt"));
}

TEST_P(Files, ADirectoryNeedsRecursiveAlsoWhenEmpty) {
  guest("mkdir -p full/er");
  guest("mkdir empty");
  EXPECT_EQ(error_of([&] { remove("full"); }), EISDIR);
  EXPECT_EQ(error_of([&] { remove("empty"); }), EISDIR);
  remove("full", Recursive::yes);
  remove("empty", Recursive::yes);
  EXPECT_TRUE(list("").empty());
}

TEST_P(Files, TheWorkingDirectoryItselfIsNotRemoved) {
  for (const Recursive recursive : {Recursive::no, Recursive::yes}) {
    EXPECT_THROW(remove("", recursive), SandboxPathRefused);
    EXPECT_THROW(remove(".", recursive), SandboxPathRefused);
  }
  EXPECT_TRUE(stat(""));
}

// -- list ----------------------------------------------------------------------------------------

TEST_P(Files, AListingIsSortedOneLevelAndNamesLinksAsLinks) {
  write("d/b", "22");
  write("d/a", "1");
  write("d/sub/x", "");
  guest("ln -s ../work-outside d/link");
  const std::vector<SandboxEntry> expected{{"d/a", EntryKind::file, 1},
                                           {"d/b", EntryKind::file, 2},
                                           {"d/link", EntryKind::symlink, {}},
                                           {"d/sub", EntryKind::directory, {}}};
  EXPECT_EQ(list("d"), expected);
  EXPECT_EQ(list("").size(), 1U);
  EXPECT_TRUE(list("d/sub").size() == 1);
}

TEST_P(Files, ALinkedDirectoryIsNotListedAndAMissingOneIsENOENT) {
  guest("ln -s ../work-outside link");
  EXPECT_THROW(list("link"), SandboxPathRefused);
  EXPECT_EQ(error_of([&] { list("missing"); }), ENOENT);
}

TEST_P(Files, AListingOfExactlyTheCapPassesAndOneMoreIsRefused) {
  const ExecResult made = run(python(R"(
import os
os.mkdir('many')
open('many/0', 'w')
for i in range(1, 100000): os.link('many/0', 'many/%d' % i)
)"));
  ASSERT_EQ(made.exit_code, 0) << made.stderr;
  EXPECT_EQ(list("many").size(), 100'000U);
  guest("touch many/more");
  expect_refusal<SandboxTransferCapExceeded>([&] { list("many"); }, "100000");
  EXPECT_EQ(list("").size(), 1U);  // the connection goes on
}

// -- Together ------------------------------------------------------------------------------------

TEST_P(Files, AnOperationAfterARefusalWorks) {
  write("f", "12345");
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(read("f", 1), SandboxTransferCapExceeded);
    EXPECT_THROW(read("missing"), SandboxFileError);
    EXPECT_EQ(read("f"), "12345");
  }
}

TEST_P(Files, ThreadsHaveConnectionsOfTheirOwn) {
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
}  // namespace casemate::seam
