#include "casemate/transfer/file_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/sys/unique_fd.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Files = std::map<std::string, std::string>;
using Paths = std::vector<std::pair<std::string, fs::path>>;

// Every byte there is, and what text handling likes to change.
std::string awkward_bytes() {
  std::string bytes = "\r\n\xEF\xBB\xBF\xFF\xFE";
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i);
  }
  return bytes;
}

int errno_of(const std::function<void()>& step) {
  try {
    step();
  } catch (const SandboxFileError& error) {
    return error.error_number();
  }
  ADD_FAILURE() << "nothing was refused";
  return 0;
}

void make_socket(const fs::path& path) {
  const sys::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.native().size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.native().size() + 1);
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

TEST(InMemoryStore, ListsSortedAndReadsBytes) {
  const InMemoryStore store(Files{{"b", awkward_bytes()}, {"a/c", ""}});
  EXPECT_THAT(store.list(), ElementsAre("a/c", "b"));
  EXPECT_EQ(store.read("b", 1000), awkward_bytes());
  EXPECT_EQ(store.read("a/c", 0), "");
  EXPECT_EQ(store.read("a", 1000), std::nullopt);
}

TEST(InMemoryStore, RefusesOverTheCapAndBadNames) {
  const InMemoryStore store(Files{{"five", "12345"}});
  EXPECT_EQ(store.read("five", 5), "12345");
  EXPECT_THAT(expect_refusal<SandboxTransferCapExceeded>([&] { store.read("five", 4); }),
              HasSubstr("\"five\" is larger than 4 bytes"));
  expect_refusal<SandboxArtifactNameInvalid>([] { InMemoryStore(Files{{"../x", ""}}); });
}

TEST(DirectoryFileStore, ListsRegularFilesAndNothingElse) {
  const Scratch scratch;
  put(scratch / "root/b.txt", "b");
  put(scratch / "root/sub/deep/a.bin", "a");
  put(scratch / "root/.hidden", "h");
  put(scratch / "outside", "secret");
  fs::create_directory(scratch / "root/empty");
  fs::create_symlink("b.txt", scratch / "root/link");
  fs::create_symlink("../outside", scratch / "root/out");
  fs::create_directory_symlink("sub", scratch / "root/linked");
  ASSERT_EQ(mkfifo((scratch / "root/fifo").c_str(), 0600), 0);
  make_socket(scratch / "root/socket");
  put(scratch / "root/bad\nname", "x");
  put(scratch / "root/back\\slash/file", "x");
  put(scratch / "root/not\xFFutf8", "x");
  const DirectoryFileStore store(scratch / "root");
  EXPECT_THAT(store.list(), ElementsAre(".hidden", "b.txt", "sub/deep/a.bin"));
}

// IN-10
TEST(DirectoryFileStore, ReadsTheCapAndNotOneByteMore) {
  const Scratch scratch;
  put(scratch / "bytes", awkward_bytes());
  put(scratch / "empty", "");
  const DirectoryFileStore store(scratch.path());
  const std::uint64_t size = awkward_bytes().size();
  EXPECT_EQ(store.read("bytes", size), awkward_bytes());
  EXPECT_EQ(store.read("empty", 0), "");
  const std::string text =
      expect_refusal<SandboxTransferCapExceeded>([&] { store.read("bytes", size - 1); });
  EXPECT_THAT(text, HasSubstr("\"bytes\""));
  EXPECT_THAT(text, HasSubstr(std::to_string(size - 1) + " bytes"));
  EXPECT_THAT(text, Not(HasSubstr(scratch.path().native())));
}

TEST(DirectoryFileStore, SaysMissingForWhatIsNotThere) {
  const Scratch scratch;
  put(scratch / "file", "x");
  const DirectoryFileStore store(scratch.path());
  EXPECT_EQ(store.read("nothing", 10), std::nullopt);
  EXPECT_EQ(store.read("nothing/below", 10), std::nullopt);
  EXPECT_EQ(store.read("file/below", 10), std::nullopt);
}

TEST(DirectoryFileStore, FollowsNoLink) {
  const Scratch scratch;
  put(scratch / "root/sub/file", "inside");
  put(scratch / "root-evil/file", "secret");
  fs::create_symlink("sub/file", scratch / "root/link");
  fs::create_directory_symlink("../root-evil", scratch / "root/evil");
  fs::create_symlink("/etc/hostname", scratch / "root/host");
  const DirectoryFileStore store(scratch / "root");
  for (const char* name : {"link", "evil/file", "host"}) {
    EXPECT_THAT(expect_refusal<SandboxPathRefused>([&] { store.read(name, 1000); }),
                HasSubstr("links are not followed"));
  }
}

TEST(DirectoryFileStore, RefusesNamesThatLeadElsewhere) {
  const Scratch scratch;
  put(scratch / "root/file", "x");
  const DirectoryFileStore store(scratch / "root");
  for (const char* name : {"../root/file", "/etc/hostname", "", ".", "sub//file"}) {
    expect_refusal<SandboxArtifactNameInvalid>([&] { store.read(name, 1000); });
  }
}

// IN-10
TEST(DirectoryFileStore, ReadsOnlyRegularFilesAndNeverWaitsForAWriter) {
  const Scratch scratch;
  fs::create_directory(scratch / "directory");
  ASSERT_EQ(mkfifo((scratch / "fifo").c_str(), 0600), 0);
  make_socket(scratch / "socket");
  const DirectoryFileStore store(scratch.path());
  EXPECT_EQ(errno_of([&] { store.read("directory", 10); }), EISDIR);
  EXPECT_EQ(errno_of([&] { store.read("fifo", 10); }), EINVAL);
  EXPECT_EQ(errno_of([&] { store.read("socket", 10); }), EINVAL);
}

TEST(DirectoryFileStore, FollowsTheOperatorsLinkToItsRoot) {
  const Scratch scratch;
  put(scratch / "real/file", "x");
  fs::create_directory_symlink("real", scratch / "link");
  const DirectoryFileStore store(scratch / "link");
  EXPECT_EQ(store.root(), scratch / "real");
  EXPECT_EQ(store.read("file", 1), "x");
}

TEST(DirectoryFileStore, RefusesARootThatIsNoDirectory) {
  const Scratch scratch;
  put(scratch / "file", "x");
  for (const char* name : {"file", "missing"}) {
    EXPECT_THAT(expect_refusal<InvalidArgument>([&] { DirectoryFileStore(scratch / name); }),
                HasSubstr(name));
  }
}

// IN-10
TEST(DirectoryFileStore, ListsAsManyEntriesAsItsBoundAndRefusesOneMore) {
  const Scratch scratch;
  for (int i = 0; i < 4; ++i) {
    put(scratch / ("sub/file" + std::to_string(i)), "");
  }
  const auto list = [&](std::size_t entries) {
    return DirectoryFileStore(scratch.path(), {.max_entries = entries}).list().size();
  };
  EXPECT_EQ(list(5), 4U);  // four files and their directory
  EXPECT_THAT(expect_refusal<SandboxTransferCapExceeded>([&] { list(4); }),
              HasSubstr("more than 4 entries"));
  EXPECT_THAT(expect_refusal<SandboxTransferCapExceeded>([&] { list(0); }),
              HasSubstr("more than 0 entries"));
}

TEST(DirectoryFileStore, CountsEntriesOverAllDirectoriesAndKinds) {
  const Scratch scratch;
  put(scratch / "a/file", "");
  put(scratch / "b/file", "");
  fs::create_symlink("x", scratch / "c");
  const auto list = [&](std::size_t entries) {
    return DirectoryFileStore(scratch.path(), {.max_entries = entries}).list();
  };
  EXPECT_THAT(list(5), ElementsAre("a/file", "b/file"));
  expect_refusal<SandboxTransferCapExceeded>([&] { list(4); });
}

TEST(DirectoryFileStore, ListsAsDeepAsItsBoundAndRefusesOneMore) {
  const Scratch scratch;
  put(scratch / "1/2/3/file", "");
  const auto list = [&](std::size_t depth) {
    return DirectoryFileStore(scratch.path(), {.max_depth = depth}).list();
  };
  EXPECT_THAT(list(3), ElementsAre("1/2/3/file"));
  EXPECT_THAT(expect_refusal<SandboxTransferCapExceeded>([&] { list(2); }),
              HasSubstr("more than 2 directories deep"));
}

// A directory that went meanwhile is passed over; one that cannot be read is not.
TEST(DirectoryFileStore, ListsAllOrSaysWhyNot) {
  const Scratch scratch;
  put(scratch / "1/2/3/4/5/6/7/8/9/10/11/12/file", "");
  const DirectoryFileStore store(scratch.path());
  EXPECT_EQ(store.list().size(), 1U);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = fcntl(0, F_DUPFD_CLOEXEC, 3);
  close(lowest);
  const rlimit few{static_cast<rlim_t>(lowest) + 6, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  try {
    store.list();
    ADD_FAILURE() << "nothing was refused";
  } catch (const SandboxFileError& refusal) {
    EXPECT_EQ(refusal.error_number(), EMFILE);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// FO-03
TEST(DirectoryFileStore, AnEntrySwappedForALinkGivesItsOwnBytesOrARefusal) {
  const Scratch scratch;
  put(scratch / "secret", "secret");
  put(scratch / "root/other/secret", "inside");
  // Followed, "swapped/secret" would be the secret.
  fs::create_directory_symlink("../", scratch / "root/swapped");
  const DirectoryFileStore store(scratch / "root");
  std::jthread swapper([&](const std::stop_token& done) {
    while (!done.stop_requested()) {
      renameat2(AT_FDCWD, (scratch / "root/swapped").c_str(), AT_FDCWD,
                (scratch / "root/other").c_str(), RENAME_EXCHANGE);
    }
  });
  int reads = 0;
  int refusals = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      const auto content = store.read("other/secret", 100);
      ASSERT_EQ(content, "inside");
      ++reads;
    } catch (const SandboxPathRefused&) {
      ++refusals;
    }
  }
  EXPECT_EQ(reads + refusals, 3000);
}

TEST(NamedFilesStore, ReadsHostFilesUnderTheOperatorsNames) {
  const Scratch scratch;
  put(scratch / "data.csv", awkward_bytes());
  fs::create_symlink("data.csv", scratch / "link");
  const NamedFilesStore store(
      Paths{{"in/a.csv", scratch / "data.csv"}, {"b.csv", scratch / "link"}});
  EXPECT_THAT(store.list(), ElementsAre("b.csv", "in/a.csv"));
  EXPECT_EQ(store.read("in/a.csv", 1000), awkward_bytes());
  EXPECT_EQ(store.read("b.csv", 1000), awkward_bytes());
  EXPECT_EQ(store.read("data.csv", 1000), std::nullopt);
}

// IN-10
TEST(NamedFilesStore, TakesRegularFilesOnlyAndNeverBlocks) {
  const Scratch scratch;
  fs::create_directory(scratch / "directory");
  ASSERT_EQ(mkfifo((scratch / "fifo").c_str(), 0600), 0);
  make_socket(scratch / "socket");
  fs::create_symlink("fifo", scratch / "link");
  const NamedFilesStore store(Paths{{"directory", scratch / "directory"},
                                    {"fifo", scratch / "fifo"},
                                    {"link", scratch / "link"},
                                    {"socket", scratch / "socket"},
                                    {"device", "/dev/zero"},
                                    {"missing", scratch / "missing"},
                                    {"other", scratch / "missing"}});
  EXPECT_EQ(errno_of([&] { store.read("directory", 10); }), EISDIR);
  EXPECT_EQ(errno_of([&] { store.read("fifo", 10); }), EINVAL);
  EXPECT_EQ(errno_of([&] { store.read("link", 10); }), EINVAL);
  EXPECT_EQ(errno_of([&] { store.read("socket", 10); }), EINVAL);
  EXPECT_EQ(errno_of([&] { store.read("device", 10); }), EINVAL);
  EXPECT_EQ(errno_of([&] { store.read("missing", 10); }), ENOENT);
  EXPECT_THAT(expect_refusal<SandboxFileError>([&] { store.read("missing", 10); }),
              HasSubstr("\"" + (scratch / "missing").native() + "\""));
  EXPECT_THAT(expect_refusal<SandboxFileError>([&] { store.read("other", 10); }),
              HasSubstr("other=" + (scratch / "missing").native()));
}

// IN-10
TEST(NamedFilesStore, StopsAtTheCapOfAFileThatGrowsWhileItIsRead) {
  // Files of /proc are regular, say that they have 0 bytes and then have more: a file that grew
  // between being looked at and being read, without a race.
  const NamedFilesStore store(Paths{{"status", "/proc/self/status"}});
  EXPECT_THAT(expect_refusal<SandboxTransferCapExceeded>([&] { store.read("status", 10); }),
              HasSubstr("larger than 10 bytes"));
  EXPECT_THAT(store.read("status", 1 << 20).value(), HasSubstr("Name:"));
}

// IN-10
TEST(NamedFilesStore, RefusesAHugeFileFromItsSizeAlone) {
  const Scratch scratch;
  put(scratch / "huge", "");
  fs::resize_file(scratch / "huge", std::uintmax_t{1} << 40);
  const NamedFilesStore store(Paths{{"huge", scratch / "huge"}});
  expect_refusal<SandboxTransferCapExceeded>([&] { store.read("huge", 8 << 20); });
}

TEST(NamedFilesStore, RefusesNamesThatCannotStandTogether) {
  expect_refusal<SandboxArtifactNameInvalid>([] { NamedFilesStore(Paths{{"/x", "x"}}); });
  expect_refusal<SandboxArtifactNameCollision>(
      [] { NamedFilesStore(Paths{{"x", "a"}, {"x", "b"}}); });
  expect_refusal<SandboxArtifactNameCollision>(
      [] { NamedFilesStore(Paths{{"x", "a"}, {"x/y", "b"}}); });
  EXPECT_NO_THROW(NamedFilesStore(Paths{{"x", "a"}, {"X", "b"}}));  // guests tell them apart
}

}  // namespace
}  // namespace casemate
