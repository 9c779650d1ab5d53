#include "casemate/backends/in_process/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "casemate/core/errors.h"

namespace casemate::in_process {
namespace {

constexpr std::string_view kWork = "/workspace";

int errno_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const SandboxFileError& error) {
    return error.error_number();
  }
  return 0;
}

std::vector<std::string> names(const std::vector<SandboxEntry>& entries) {
  std::vector<std::string> paths;
  for (const SandboxEntry& entry : entries) paths.push_back(entry.path);
  return paths;
}

class InProcessStore : public testing::Test {
 protected:
  InProcessStore() {
    store.put_file("/workspace/plain.txt", "plain");
    store.put_file("/workspace/real/inside.txt", "inside");
    store.put_file("/workspace-outside/secret.txt", "secret");
    store.put("/workspace/link", EntryKind::symlink);
    store.put("/workspace/fifo", EntryKind::other);
  }

  void write(std::string_view path, std::string_view working_directory = kWork) {
    store.write_file(path, std::string_view("new"), working_directory);
  }

  Store store;
};

TEST_F(InProcessStore, WritesAndReadsBackBytesAndMakesParents) {
  const std::string bytes("a\0b\xff", 4);
  store.write_file("deep/er/file", bytes, kWork);
  EXPECT_EQ(store.read_file("deep/er/file", kWork, 4), bytes);
  EXPECT_EQ(store.stat_file("deep/er", kWork)->kind, EntryKind::directory);
  write("/workspace/plain.txt");
  EXPECT_EQ(store.read_file("plain.txt", kWork, 99), "new");
}

TEST_F(InProcessStore, ConfinesEveryPathMethod) {
  for (const std::string path : {"../workspace-outside/secret.txt", "/workspace-outside/secret.txt",
                                 "a\\b", "/etc/passwd", "link/below"}) {
    EXPECT_THROW(write(path), SandboxPathRefused) << path;
    EXPECT_THROW(store.stat_file(path, kWork), SandboxPathRefused) << path;
    EXPECT_THROW(store.read_file(path, kWork, 99), SandboxPathRefused) << path;
    EXPECT_THROW(store.remove(path, kWork, Recursive::yes), SandboxPathRefused) << path;
    EXPECT_THROW(store.list_dir(path, kWork), SandboxPathRefused) << path;
  }
  EXPECT_FALSE(store.contains("/workspace-outside/below"));
  EXPECT_EQ(store.bytes("/workspace-outside/secret.txt"), "secret");
}

TEST_F(InProcessStore, ALinkedWorkingDirectoryOrAncestorIsRefused) {
  store.put("/linked", EntryKind::symlink);
  for (const std::string_view working_directory : {"/linked", "/linked/below"}) {
    EXPECT_THROW(write("f", working_directory), SandboxPathRefused);
    EXPECT_THROW(store.stat_file("f", working_directory), SandboxPathRefused);
    EXPECT_THROW(store.read_file("f", working_directory, 9), SandboxPathRefused);
    EXPECT_THROW(store.remove("f", working_directory, Recursive::no), SandboxPathRefused);
    EXPECT_THROW(store.list_dir("", working_directory), SandboxPathRefused);
  }
}

TEST_F(InProcessStore, APlainParentIsNoEscapeButNoDirectoryEither) {
  for (const std::string path : {"plain.txt/below", "fifo/below"}) {
    EXPECT_EQ(errno_of([&] { write(path); }), ENOTDIR);
    EXPECT_EQ(errno_of([&] { store.stat_file(path, kWork); }), ENOTDIR);
    EXPECT_EQ(errno_of([&] { store.read_file(path, kWork, 9); }), ENOTDIR);
    EXPECT_EQ(errno_of([&] { store.remove(path, kWork, Recursive::no); }), ENOTDIR);
    EXPECT_EQ(errno_of([&] { store.list_dir(path, kWork); }), ENOTDIR);
  }
}

TEST_F(InProcessStore, RefusesToWriteThroughALinkOrOverTheWorkingDirectory) {
  EXPECT_THROW(write("link"), SandboxPathRefused);
  for (const std::string path : {"", ".", "/workspace", "real/.."}) {
    EXPECT_THROW(write(path), SandboxPathRefused) << path;
  }
}

TEST_F(InProcessStore, ReplacesASpecialFileOrADirectory) {
  write("fifo");
  write("real");
  EXPECT_EQ(store.read_file("fifo", kWork, 9), "new");
  EXPECT_EQ(store.read_file("real", kWork, 9), "new");
}

TEST_F(InProcessStore, StatNamesTheKindAndTheSizeOfFilesOnly) {
  const auto entry = [&](std::string_view path) { return store.stat_file(path, kWork); };
  EXPECT_EQ(entry("real/inside.txt"), (SandboxEntry{"real/inside.txt", EntryKind::file, 6}));
  EXPECT_EQ(entry("link"), (SandboxEntry{"link", EntryKind::symlink, {}}));
  EXPECT_EQ(entry("fifo"), (SandboxEntry{"fifo", EntryKind::other, {}}));
  EXPECT_EQ(entry("real"), (SandboxEntry{"real", EntryKind::directory, {}}));
  EXPECT_EQ(entry("missing"), std::nullopt);
  EXPECT_EQ(entry("missing/below"), std::nullopt);
}

TEST_F(InProcessStore, ReadsRegularFilesOnly) {
  const auto read = [&](std::string_view path) {
    return errno_of([&] { store.read_file(path, kWork, 99); });
  };
  EXPECT_EQ(read("link"), ELOOP);
  EXPECT_EQ(read("fifo"), EINVAL);
  EXPECT_EQ(read("real"), EISDIR);
  EXPECT_EQ(read("missing"), ENOENT);
}

TEST_F(InProcessStore, ReadsAtTheCapAndRefusesOneByteOver) {
  EXPECT_EQ(store.read_file("plain.txt", kWork, 5), "plain");
  EXPECT_THROW(store.read_file("plain.txt", kWork, 4), SandboxTransferCapExceeded);
}

TEST_F(InProcessStore, RemovesWhatIsThereAndNothingBeside) {
  store.put_file("/workspace/real2/bystander", "stays");
  store.remove("plain.txt", kWork, Recursive::no);
  store.remove("plain.txt", kWork, Recursive::no);
  EXPECT_FALSE(store.contains("/workspace/plain.txt"));
  store.remove("link", kWork, Recursive::yes);
  EXPECT_FALSE(store.contains("/workspace/link"));

  store.put("/workspace/empty", EntryKind::directory);
  for (const std::string path : {"real", "empty"}) {
    EXPECT_EQ(errno_of([&] { store.remove(path, kWork, Recursive::no); }), EISDIR);
    store.remove(path, kWork, Recursive::yes);
    EXPECT_FALSE(store.contains("/workspace/" + path));
  }
  EXPECT_FALSE(store.contains("/workspace/real/inside.txt"));
  EXPECT_EQ(store.bytes("/workspace/real2/bystander"), "stays");
  for (const std::string path : {"", ".", "/workspace"}) {
    EXPECT_THROW(store.remove(path, kWork, Recursive::yes), SandboxPathRefused);
  }
}

TEST_F(InProcessStore, ListsOneLevelSortedByNameAndNamesLinks) {
  store.put_file("/workspace/real-sibling", "");
  EXPECT_EQ(names(store.list_dir("", kWork)),
            (std::vector<std::string>{"fifo", "link", "plain.txt", "real", "real-sibling"}));
  EXPECT_EQ(names(store.list_dir("real", kWork)), (std::vector<std::string>{"real/inside.txt"}));
  EXPECT_EQ(store.list_dir("", kWork)[1].kind, EntryKind::symlink);
  EXPECT_THROW(store.list_dir("link", kWork), SandboxPathRefused);
  EXPECT_EQ(errno_of([&] { store.list_dir("plain.txt", kWork); }), ENOTDIR);
  EXPECT_EQ(errno_of([&] { store.list_dir("missing", kWork); }), ENOENT);
}

TEST_F(InProcessStore, ListsAtMostSoManyEntries) {
  for (int i = 0; i < 100'000; ++i) store.put_file("/many/" + std::to_string(i), "");
  EXPECT_EQ(store.list_dir("", "/many").size(), 100'000U);
  store.put_file("/many/one-more", "");
  EXPECT_THROW(store.list_dir("", "/many"), SandboxTransferCapExceeded);
}

TEST_F(InProcessStore, AProgramsDirectoryExistsAndLeadsThroughNoLink) {
  EXPECT_EQ(store.program_directory("", kWork), "/workspace");
  EXPECT_EQ(store.program_directory("real", kWork), "/workspace/real");
  EXPECT_EQ(store.program_directory("/tmp", kWork), "/tmp");
  EXPECT_THROW(store.program_directory("link", kWork), SandboxPathRefused);
  EXPECT_EQ(errno_of([&] { store.program_directory("missing", kWork); }), ENOENT);
  EXPECT_EQ(errno_of([&] { store.program_directory("plain.txt", kWork); }), ENOTDIR);
}

TEST_F(InProcessStore, AProgramPutsAndErasesWhatItLikes) {
  store.put_file("/workspace/link", "no link any more");
  EXPECT_EQ(store.bytes("/workspace/link"), "no link any more");
  store.erase("/workspace/real");
  EXPECT_FALSE(store.contains("/workspace/real/inside.txt"));
  EXPECT_TRUE(store.contains("/workspace"));
  EXPECT_EQ(store.bytes("/workspace"), std::nullopt);
  EXPECT_EQ(store.bytes("/missing"), std::nullopt);
}

TEST_F(InProcessStore, RefusesMalformedSeeds) {
  EXPECT_THROW(store.put_file("relative", ""), InvalidArgument);
  EXPECT_THROW(store.put_file("/", ""), InvalidArgument);
  EXPECT_THROW(store.put("/file", EntryKind::file), InvalidArgument);
  EXPECT_THROW(store.erase("relative"), InvalidArgument);
  EXPECT_THROW(store.erase("/"), InvalidArgument);
  EXPECT_THROW((void)store.contains("relative"), InvalidArgument);
}

TEST_F(InProcessStore, ShowsItsFilesAsBytesAndAsText) {
  EXPECT_EQ(store.files(), store.contents());
  EXPECT_EQ(store.files().at("/workspace/plain.txt"), "plain");
  EXPECT_EQ(store.contents().size(), 3U);
  EXPECT_EQ(store.paths_of(EntryKind::symlink), std::vector<std::string>{"/workspace/link"});
  EXPECT_EQ(store.paths_of(EntryKind::other), std::vector<std::string>{"/workspace/fifo"});
  store.put_file("/workspace/image", "\xff\xd8");
  EXPECT_EQ(store.contents().size(), 4U);
  EXPECT_THROW(store.files(), InvalidArgument);
}

}  // namespace
}  // namespace casemate::in_process
