#include "casemate/guest/agent/tree_archive.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "casemate/guest/agent/archive_format.h"
#include "casemate/guest/agent/directory.h"
#include "casemate/guest/frame.h"

namespace casemate::guest {
namespace {

namespace fs = std::filesystem;

std::string shared_memory_directory() {
  std::string pattern = "/dev/shm/casemate-XXXXXX";
  return mkdtemp(pattern.data());
}

class TreeArchive : public testing::Test {
 protected:
  TreeArchive() : root_(shared_memory_directory()) {
    for (const char* name : {"from", "to"}) fs::create_directory(root_ / name);
    std::ofstream(root_ / "outside") << "theirs";
  }
  ~TreeArchive() override { fs::remove_all(root_); }

  fs::path from(const std::string& path = "") const { return root_ / "from" / path; }
  fs::path to(const std::string& path = "") const { return root_ / "to" / path; }

  std::string archive() const {
    std::string bytes;
    archive_tree(root_ / "from", [&](std::string_view more) { bytes += more; });
    return bytes;
  }

  // What comes of it: an errno, 0 when all was unpacked. Exactly these bytes are there to be read.
  int unpack(std::string_view bytes) {
    try {
      unpack_tree(root_ / "to", [&](std::span<char> wanted) {
        if (wanted.size() > bytes.size()) fail_with(ENODATA);
        std::copy_n(bytes.data(), wanted.size(), wanted.data());
        bytes.remove_prefix(wanted.size());
      });
    } catch (const OperationFailed& failed) {
      text_ = failed.failure.text;
      return failed.failure.error;
    }
    return bytes.empty() ? 0 : EMSGSIZE;
  }

  void expect_outside_untouched() const {
    std::string bytes;
    std::ifstream(root_ / "outside") >> bytes;
    EXPECT_EQ(bytes, "theirs");
    EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 3) << "something was made beside";
  }

  fs::path root_;
  std::string text_;
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct stat look(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status;
}

TEST_F(TreeArchive, GivesBackWhatWasThere) {
  fs::create_directories(from("a/b/c"));
  std::ofstream(from("a/b/c/file")) << "bytes";
  std::ofstream(from("a/empty"));
  fs::create_symlink("../outside", from("a/link"));
  ASSERT_EQ(mkfifo(from("fifo").c_str(), 0612), 0);
  ASSERT_EQ(chmod(from("fifo").c_str(), 0612), 0);
  fs::create_hard_link(from("a/b/c/file"), from("same"));
  const timespec times[2] = {{1, 2}, {123, 456'789'012}};
  ASSERT_EQ(utimensat(AT_FDCWD, from("a/b").c_str(), times, 0), 0);
  ASSERT_EQ(chmod(from("a/b").c_str(), 01710), 0);
  ASSERT_EQ(unpack(archive()), 0);
  EXPECT_EQ(read(to("a/b/c/file")), "bytes");
  EXPECT_EQ(look(to("a/empty")).st_size, 0);
  EXPECT_EQ(fs::read_symlink(to("a/link")), "../outside");
  EXPECT_EQ(look(to("fifo")).st_mode, S_IFIFO | 0612U);
  EXPECT_EQ(look(to("same")).st_ino, look(to("a/b/c/file")).st_ino);
  EXPECT_EQ(look(to("same")).st_nlink, 2U);
  EXPECT_EQ(look(to("a/b")).st_mode, S_IFDIR | 01710U);
  EXPECT_EQ(look(to("a/b")).st_mtim.tv_sec, 123);
  EXPECT_EQ(look(to("a/b")).st_mtim.tv_nsec, 456'789'012);
}

TEST_F(TreeArchive, KeepsHolesAsHoles) {
  {
    std::ofstream sparse(from("sparse"));
    sparse << "begin";
    sparse.seekp(10 << 20);
    sparse << "end";
  }
  fs::resize_file(from("sparse"), std::uintmax_t{1} << 40);
  const std::string bytes = archive();
  EXPECT_LT(bytes.size(), 20'000U);
  ASSERT_EQ(unpack(bytes), 0);
  EXPECT_EQ(look(to("sparse")).st_size, off_t{1} << 40);
  EXPECT_LT(look(to("sparse")).st_blocks, 100);
  std::ifstream file(to("sparse"));
  std::string word(5, '\0');
  file.read(word.data(), 5);
  EXPECT_EQ(word, "begin");
  file.seekg(10 << 20);
  file.read(word.data(), 3);
  EXPECT_EQ(word.substr(0, 3), "end");
}

TEST_F(TreeArchive, TakesNoSetUserIdBitsAndNoSockets) {
  std::ofstream(from("tool")) << "x";
  ASSERT_EQ(chmod(from("tool").c_str(), 06755), 0);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  from("socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(listener);
  ASSERT_EQ(unpack(archive()), 0);
  EXPECT_EQ(look(to("tool")).st_mode & 07777, 0755U);
  EXPECT_FALSE(fs::exists(fs::symlink_status(to("socket"))));
}

TEST_F(TreeArchive, NamesWhatCannotBeKept) {
  const std::string name(250, 'd');
  fs::create_directory(from(name));
  ASSERT_EQ(chdir(from(name).c_str()), 0);
  for (int level = 0; level < 20; ++level) {
    ASSERT_EQ(mkdir(name.c_str(), 0700), 0);
    ASSERT_EQ(chdir(name.c_str()), 0);
  }
  ASSERT_EQ(chdir("/"), 0);
  try {
    archive();
    ADD_FAILURE() << "a path of 5,000 bytes was kept";
  } catch (const OperationFailed& failed) {
    EXPECT_EQ(failed.failure.error, ENAMETOOLONG);
    EXPECT_EQ(failed.failure.text.substr(0, 250), name);
  }
}

// -- Bytes of a guest that was taken over ---------------------------------------------------------

class HostileArchive : public TreeArchive {
 protected:
  using Entry = ArchiveEntry;

  static std::string attributes(unsigned mode = 0700, std::uint32_t nanoseconds = 0) {
    return Writer().u32(mode).u64(0).u32(nanoseconds).take();
  }
  static std::string entry(Entry type, const std::string& name, const std::string& rest) {
    return Writer().u8(static_cast<std::uint8_t>(type)).string(name).take() + rest;
  }
  static std::string file(const std::string& name, const std::string& data = "x") {
    return entry(Entry::file, name,
                 attributes() + Writer().u64(data.size()).u8(0).u64(0).u64(data.size()).take() +
                     data + Writer().u64(0).u64(0).take());
  }
  static std::string enter(const std::string& name) {
    return entry(Entry::enter, name, attributes());
  }
  static std::string link(const std::string& name, const std::string& target) {
    return entry(Entry::symlink, name, attributes(0777) + Writer().string(target).take());
  }
  static std::string leave() { return {static_cast<char>(Entry::leave)}; }

  int unpack_entries(const std::string& entries) {
    return unpack(attributes() + entries + leave());
  }
};

TEST_F(HostileArchive, CannotLeaveTheDirectory) {
  for (const std::string& name :
       {std::string(".."), std::string("."), std::string("../outside"), std::string("/etc"),
        std::string("a/b"), std::string(), std::string("nul\0byte", 8), std::string(256, 'n')}) {
    EXPECT_EQ(unpack_entries(file(name)), EBADMSG) << name;
    EXPECT_EQ(unpack_entries(enter(name) + leave()), EBADMSG) << name;
    EXPECT_EQ(unpack_entries(link(name, "target")), EBADMSG) << name;
  }
  EXPECT_TRUE(fs::is_empty(to()));
  expect_outside_untouched();
}

TEST_F(HostileArchive, CannotGoThroughALinkThatItBrought) {
  EXPECT_EQ(unpack_entries(link("up", "..") + enter("up") + file("outside") + leave()), EEXIST);
  EXPECT_EQ(unpack_entries(link("there", "../outside") + file("there", "ours")), EEXIST);
  EXPECT_EQ(unpack_entries(link("theirs", "../outside") +
                           entry(Entry::other_name, "ours", Writer().u32(0).take())),
            EBADMSG)
      << "a link is none of the files with other names";
  expect_outside_untouched();
}

TEST_F(HostileArchive, CannotLeaveMoreOftenThanItEntered) {
  EXPECT_EQ(unpack_entries(leave() + file("late")), EMSGSIZE) << "the first leave is the end";
  EXPECT_FALSE(fs::exists(to("late")));
}

TEST_F(HostileArchive, IsHeldToItsNumbers) {
  const std::string numbers = Writer().u64(1).u8(0).take();
  EXPECT_EQ(unpack_entries(entry(Entry::file, "setuid", attributes(04755) + numbers)), EBADMSG);
  EXPECT_EQ(unpack_entries(entry(Entry::file, "time", attributes(0, 1'000'000'000) + numbers)),
            EBADMSG);
  EXPECT_EQ(unpack_entries(entry(Entry::file, "a",
                                 attributes() + numbers + Writer().u64(1).u64(1).take() + "x")),
            EBADMSG)
      << "an extent behind the end";
  EXPECT_EQ(unpack_entries(entry(Entry::file, "b",
                                 attributes() + numbers + Writer().u64(UINT64_MAX).u64(2).take())),
            EBADMSG);
  EXPECT_EQ(
      unpack_entries(entry(Entry::file, "c", attributes() + Writer().u64(UINT64_MAX).u8(0).take())),
      EBADMSG);
  EXPECT_EQ(unpack_entries("\x7f"), EBADMSG);
  EXPECT_EQ(unpack_entries(link("l", std::string(4096, 't'))), EBADMSG);
}

TEST_F(HostileArchive, CannotGoDeeperThanAPath) {
  std::string deep;
  for (int level = 0; level < 3000; ++level) deep += enter("n");
  EXPECT_EQ(unpack_entries(deep), ENAMETOOLONG);
}

// To who is no root, a directory without rights keeps what is in it.
void open_to_remove(const fs::path& directory) {
  fs::permissions(directory, fs::perms::owner_all);
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.symlink_status().type() == fs::file_type::directory) open_to_remove(entry.path());
  }
}

// What is remembered when it is put back is counted when it is taken.
TEST_F(TreeArchive, OfMoreClosedDirectoriesThanCanBeRememberedIsRefusedWhenItIsTaken) {
  const std::string deep = [] {
    std::string path;
    for (int level = 0; level < 16; ++level) path += std::string(250, 'd') + "/";
    return path;
  }();
  fs::create_directories(from(deep));
  const int few = 4100;
  const auto close_some = [&](int first, int last) {
    for (int each = first; each < last; ++each) {
      ASSERT_EQ(mkdir(from(deep + std::to_string(each)).c_str(), 0), 0);
    }
  };
  close_some(0, few);
  EXPECT_EQ(unpack(archive()), 0) << text_;
  close_some(few, few + 100);
  try {
    archive();
    ADD_FAILURE() << "it was taken";
  } catch (const OperationFailed& failed) {
    EXPECT_EQ(failed.failure.error, E2BIG);
  }
  open_to_remove(from());
  open_to_remove(to());
}

// Whatever byte differs: it is refused or something of its own is made, never anything beside.
TEST_F(TreeArchive, WithAnyByteChangedStaysInside) {
  fs::create_directories(from("d/e"));
  std::ofstream(from("d/e/f")) << "bytes";
  fs::create_hard_link(from("d/e/f"), from("d/g"));
  fs::create_symlink("../outside", from("l"));
  const std::string good = archive();
  ASSERT_LT(good.size(), 600U);
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int change : {1, 0x2f, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      if (unpack(bytes) != 0) ++refused;
      open_to_remove(to());
      fs::remove_all(to());
      fs::create_directory(to());
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, static_cast<int>(good.size()));
  expect_outside_untouched();
}

}  // namespace
}  // namespace casemate::guest
