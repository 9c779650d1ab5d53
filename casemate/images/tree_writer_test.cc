#include "casemate/images/tree_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/images/tar_builder_test.h"
#include "casemate/sys/beneath.h"
#include "tests/support/scratch.h"

namespace casemate::images {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::HasSubstr;

class Layers : public testing::Test {
 protected:
  Layers() {
    fs::create_directories(root());
    write_test_file(scratch_ / "outside/secret", "outside");
    root_ = sys::open_path(root().native(), O_RDONLY | O_DIRECTORY);
    writer_.emplace(root_.get());
  }

  fs::path root() const { return scratch_ / "root"; }

  TarSums add_bytes(const std::string& bytes, const TarBounds& bounds = {1 << 24, 1000}) {
    write_test_file(scratch_ / "layer.tar", bytes);
    const sys::UniqueFd file = sys::open_path((scratch_ / "layer.tar").native(), O_RDONLY);
    TarStream stream(file.get(), bounds, {});
    writer_->add_layer(stream);
    return stream.finish();
  }
  TarSums add(const TarBuilder& tar) { return add_bytes(tar.finish()); }

  // Why it is refused, or nothing.
  std::string refusal(const std::string& bytes, const TarBounds& bounds = {1 << 24, 1000}) {
    try {
      add_bytes(bytes, bounds);
      return "";
    } catch (const SandboxImageInvalid& refused) {
      return refused.message();
    }
  }
  std::string refusal(const TarBuilder& tar) { return refusal(tar.finish()); }

  std::string read(const std::string& name) const {
    std::ifstream file(root() / name, std::ios::binary);
    if (!file) return "(none)";
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Everything below the root, "d/" for directories.
  std::vector<std::string> tree() const {
    std::vector<std::string> names;
    for (const auto& found : fs::recursive_directory_iterator(root())) {
      names.push_back(found.path().lexically_relative(root()).native() +
                      (found.is_directory() && !found.is_symlink() ? "/" : ""));
    }
    std::ranges::sort(names);
    return names;
  }
  struct stat status(const std::string& name) const {
    struct stat found{};
    EXPECT_EQ(lstat((root() / name).c_str(), &found), 0) << name;
    return found;
  }

  Scratch scratch_;
  sys::UniqueFd root_;
  std::optional<TreeWriter> writer_;
};

TEST_F(Layers, AreReadPlainAndWithEachCompression) {
  const std::string tar = TarBuilder().file("a", "content").finish();
  for (const std::string& bytes : {tar, gzip(tar), zstd(tar)}) {
    fs::remove(root() / "a");
    const TarSums sums = add_bytes(bytes);
    EXPECT_EQ(read("a"), "content");
    EXPECT_EQ(sums.digest, digest_of(bytes));
    EXPECT_EQ(sums.unpacked_digest, digest_of(tar));
    EXPECT_EQ(sums.bytes, bytes.size());
    EXPECT_EQ(sums.unpacked_bytes, tar.size());
  }
}

TEST_F(Layers, ALayerWithoutEntriesIsOne) {
  EXPECT_EQ(refusal(TarBuilder().finish()), "");
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(gzip("")), "");
  EXPECT_TRUE(tree().empty());
}

TEST_F(Layers, KeepOfAModeOnlyWhetherItsOwnerMayExecute) {
  add(TarBuilder()
          .file("setuid", "x", 06755)
          .file("secret", "x", 0600)
          .file("unreadable", "x", 0)
          .entry('5', "dir", "", "", {.mode = 01000}));
  EXPECT_EQ(status("setuid").st_mode, S_IFREG | 0755U);
  EXPECT_EQ(status("secret").st_mode, S_IFREG | 0644U);
  EXPECT_EQ(status("unreadable").st_mode, S_IFREG | 0644U);
  EXPECT_EQ(status("dir").st_mode, S_IFDIR | 0755U);
  EXPECT_EQ(status("secret").st_mtime, 1000000000);
}

TEST_F(Layers, ANameThatLeadsOutsideIsRefused) {
  EXPECT_THAT(refusal(TarBuilder().file("../outside/new")), HasSubstr("leads outside"));
  EXPECT_THAT(refusal(TarBuilder().file("a/../../outside/new")), HasSubstr("leads outside"));
  EXPECT_THAT(refusal(TarBuilder().file("..")), HasSubstr("leads outside"));
  EXPECT_THAT(refusal(TarBuilder().file("/tmp/new")), HasSubstr("absolute"));
  EXPECT_THAT(refusal(TarBuilder().hard_link("a", "../outside/secret")), HasSubstr("outside"));
  EXPECT_THAT(refusal(TarBuilder().hard_link("a", "/etc/passwd")), HasSubstr("absolute"));
  EXPECT_THAT(refusal(TarBuilder().file("../.wh.outside")), HasSubstr("leads outside"));
  EXPECT_EQ(refusal(TarBuilder().file("./b/./c")), "");
  EXPECT_THAT(tree(), testing::ElementsAre("b/", "b/c"));
  EXPECT_FALSE(fs::exists(scratch_ / "outside/new"));
}

TEST_F(Layers, ALinkIsContentAndNeverFollowed) {
  const std::string outside = (scratch_ / "outside").native();
  for (const std::string& target : {outside, "../outside"s, "/"s, "."s}) {
    add(TarBuilder().symbolic_link("link", target));
    EXPECT_EQ(fs::read_symlink(root() / "link"), target);
    EXPECT_THAT(refusal(TarBuilder().file("link/secret", "changed")), HasSubstr("through a link"));
    EXPECT_THAT(refusal(TarBuilder().directory("link/new")), HasSubstr("through a link"));
    EXPECT_THAT(refusal(TarBuilder().symbolic_link("link/new", "x")), HasSubstr("through a link"));
    EXPECT_THAT(refusal(TarBuilder().hard_link("new", "link/secret")), HasSubstr("through a link"));
    EXPECT_THAT(refusal(TarBuilder().file("link/.wh.secret")), HasSubstr("through a link"));
    EXPECT_THAT(refusal(TarBuilder().file("link/.wh..wh..opq")), HasSubstr("through a link"));
  }
  // The link itself is replaced, not what it leads to.
  add(TarBuilder().symbolic_link("link", outside + "/secret").file("link", "new"));
  EXPECT_EQ(read("link"), "new");
  std::ifstream secret(scratch_ / "outside/secret");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(secret), {}), "outside");
}

TEST_F(Layers, AHardLinkLeadsToAnEntryThatIsThere) {
  add(TarBuilder()
          .file("a", "content")
          .hard_link("d/b", "./a")
          .symbolic_link("s", "/x")
          .hard_link("t", "s"));
  EXPECT_EQ(status("a").st_ino, status("d/b").st_ino);
  EXPECT_EQ(fs::read_symlink(root() / "t"), "/x");
  EXPECT_THAT(refusal(TarBuilder().hard_link("c", "missing")), HasSubstr("not there"));
  EXPECT_THAT(refusal(TarBuilder().hard_link("c", "no/way")), HasSubstr("not there"));
  EXPECT_THAT(refusal(TarBuilder().hard_link("c", "d")), HasSubstr("to a directory"));
  EXPECT_THAT(refusal(TarBuilder().hard_link("c", ".")), HasSubstr("to the root"));
  EXPECT_THAT(refusal(TarBuilder().hard_link("d", "d/b")), HasSubstr("what it replaces"));
  // To itself, by one name or two.
  EXPECT_EQ(refusal(TarBuilder().hard_link("a", "a").hard_link("a", "d/b")), "");
  EXPECT_EQ(read("a"), "content");
}

TEST_F(Layers, ALaterEntryReplacesAnEarlierOneAndNotWhatIsLinkedToIt) {
  add(TarBuilder().file("a", "one").hard_link("b", "a").file("a", "two"));
  EXPECT_EQ(read("a"), "two");
  EXPECT_EQ(read("b"), "one");
  // Each kind by each other.
  add(TarBuilder().directory("a").file("a/in").directory("b").file("b/c/d"));
  EXPECT_THAT(tree(), testing::ElementsAre("a/", "a/in", "b/", "b/c/", "b/c/d"));
}

TEST_F(Layers, ADirectoryKeepsWhatIsInItAndALinkOrFileDoesNot) {
  add(TarBuilder().file("a/x").file("b/x").file("c/x"));
  add(TarBuilder().directory("a").symbolic_link("b", "/usr").file("c", "file"));
  EXPECT_THAT(tree(), testing::ElementsAre("a/", "a/x", "b", "c"));
  add(TarBuilder().directory("b/"));
  EXPECT_TRUE(S_ISDIR(status("b").st_mode));
}

TEST_F(Layers, AParentThatIsAFileIsRefused) {
  add(TarBuilder().file("a"));
  EXPECT_THAT(refusal(TarBuilder().file("a/b")), HasSubstr("no directory"));
  EXPECT_THAT(refusal(TarBuilder().file("")), HasSubstr(""));
  EXPECT_THAT(refusal(TarBuilder().symbolic_link("./", "/")), HasSubstr("replace the root"));
}

TEST_F(Layers, AWhiteoutHidesWhatLowerLayersWrote) {
  add(TarBuilder().file("d/a").file("d/b").file("d/sub/c").file("e"));
  add(TarBuilder()
          .file("d/.wh.a", "")
          .file("d/.wh.sub", "")
          .file(".wh.missing", "")
          .file("no/.wh.x", ""));
  EXPECT_THAT(tree(), testing::ElementsAre("d/", "d/b", "e"));
}

TEST_F(Layers, AWhiteoutHidesNothingOfItsOwnLayerInWhateverOrder) {
  add(TarBuilder().file("d/lower").file("f", "lower"));
  add(TarBuilder().file("d/own").file("f", "own").file(".wh.d", "").file(".wh.f", ""));
  EXPECT_THAT(tree(), testing::ElementsAre("d/", "d/own", "f"));
  EXPECT_EQ(read("f"), "own");
}

TEST_F(Layers, AnOpaqueDirectoryHidesLowerLayersInWhateverOrder) {
  add(TarBuilder().file("d/lower").file("d/sub/lower").file("e/lower"));
  add(TarBuilder().directory("d").file("d/sub/own").file("d/.wh..wh..opq", "").file("d/late"));
  EXPECT_THAT(tree(), testing::ElementsAre("d/", "d/late", "d/sub/", "d/sub/own", "e/", "e/lower"));
  add(TarBuilder().file(".wh..wh..opq", ""));
  EXPECT_TRUE(tree().empty());
}

TEST_F(Layers, AWhiteoutWithoutANameIsRefusedAndMarksOfTheFileSystemArePassedOver) {
  for (const char* name : {".wh.", ".wh..", ".wh...", "a/.wh."}) {
    EXPECT_THAT(refusal(TarBuilder().file(name, "")), HasSubstr("hides nothing")) << name;
  }
  add(TarBuilder().file(".wh..wh.aufs", "").directory(".wh..wh.plnk"));
  EXPECT_TRUE(tree().empty());
}

TEST_F(Layers, DevicesAndFifosArePassedOver) {
  add(TarBuilder().entry('3', "char").entry('4', "block").entry('6', "fifo").file("a"));
  EXPECT_THAT(tree(), testing::ElementsAre("a"));
  EXPECT_EQ(writer_->passed_over(), 3U);
  EXPECT_EQ(writer_->files(), 1U);
}

TEST_F(Layers, NamesAreBytes) {
  add(TarBuilder()
          .file("\xff\xfe")
          .file("tab\tnew\nline")
          .pax({{"path", "caf\xc3\xa9"}})
          .file("short"));
  EXPECT_THAT(tree(), testing::ElementsAre("caf\xc3\xa9", "tab\tnew\nline", "\xff\xfe"));
}

TEST_F(Layers, ANameThatBreaksTheEncodingItClaimsIsRefused) {
  EXPECT_THAT(refusal(TarBuilder().pax({{"path", "a\xff"}}).file("short")),
              HasSubstr("can't be converted"));
}

TEST_F(Layers, LongNamesAreTakenUpToTheBounds) {
  const std::string component(255, 'c');
  const std::string long_path = component + "/" + std::string(200, 'd') + "/f";
  add(TarBuilder().pax({{"path", long_path}}).file("short"));
  EXPECT_EQ(read(long_path), "x");
  add(TarBuilder().entry('L', "././@LongLink", long_path + "g"s + '\0').file("short"));
  EXPECT_EQ(read(long_path + "g"), "x");
  EXPECT_THAT(refusal(TarBuilder().pax({{"path", component + "c"}}).file("short")),
              HasSubstr("255 bytes"));
  std::string deep;
  for (std::size_t i = 0; i < kMaxDepth - 1; ++i) deep += "d/";
  add(TarBuilder().pax({{"path", deep + "f"}}).file("short"));
  EXPECT_EQ(read(deep + "f"), "x");
  EXPECT_THAT(refusal(TarBuilder().pax({{"path", deep + "d/f"}}).file("short")),
              HasSubstr("deeper"));
  std::string path;
  while (path.size() < 4096) path += std::string(200, 'p') + "/";
  EXPECT_THAT(refusal(TarBuilder().pax({{"path", path}}).file("short")), HasSubstr("4095 bytes"));
  EXPECT_THAT(refusal(TarBuilder().pax({{"linkpath", path}}).symbolic_link("l", "x")),
              HasSubstr("4095 bytes"));
}

TEST_F(Layers, ExtendedAttributesAreDropped) {
  add(TarBuilder()
          .pax({{"SCHILY.xattr.user.a", "b"}, {"SCHILY.xattr.security.capability", "\x01"}})
          .file("a"));
  EXPECT_EQ(read("a"), "x");
}

TEST_F(Layers, ASparseFileCountsWhole) {
  const std::string map = "2\n0\n1\n1048575\n1\n"s;
  std::string content = map + std::string(TarBuilder::kBlock - map.size(), '\0') + "ab";
  const auto sparse = [&](const std::string& size) {
    return TarBuilder()
        .pax({{"GNU.sparse.major", "1"},
              {"GNU.sparse.minor", "0"},
              {"GNU.sparse.name", "sparse"},
              {"GNU.sparse.realsize", size}})
        .file("short", content);
  };
  add(sparse("2097152"));
  EXPECT_EQ(status("sparse").st_size, 2097152);
  const std::string got = read("sparse");
  EXPECT_EQ(got[0], 'a');
  EXPECT_EQ(got[1048575], 'b');
  EXPECT_THAT(refusal(sparse("1099511627776")), HasSubstr("bytes, unpacked"));
}

// FO-11
TEST_F(Layers, CountAndSizeBoundsHoldExactly) {
  const std::string tar = TarBuilder().file("a", std::string(600, 'a')).file("b").finish();
  EXPECT_EQ(refusal(tar, {.max_bytes = tar.size(), .max_entries = 2}), "");
  EXPECT_THAT(refusal(tar, {.max_bytes = tar.size(), .max_entries = 1}), HasSubstr("1 entries"));
  EXPECT_THAT(refusal(tar, {.max_bytes = tar.size() - 1, .max_entries = 2}),
              HasSubstr("bytes, unpacked"));
  const std::string bomb = TarBuilder().file("a", std::string(10 << 20, '\0')).finish();
  for (const std::string& packed : {gzip(bomb), zstd(bomb)}) {
    EXPECT_LT(packed.size(), 1U << 16);
    EXPECT_THAT(refusal(packed, {.max_bytes = 1 << 20, .max_entries = 2}),
                HasSubstr("bytes, unpacked"));
  }
  // All of it behind the archive's own end.
  EXPECT_THAT(refusal(gzip(TarBuilder().finish() + std::string(10 << 20, '\0')),
                      {.max_bytes = 1 << 20, .max_entries = 2}),
              HasSubstr("bytes, unpacked"));
}

TEST_F(Layers, AnArchiveThatIsCutOffIsRefused) {
  const std::string tar = TarBuilder().file("a", std::string(2000, 'a')).finish();
  for (const std::size_t length : {100U, 512U, 600U, 2000U}) {
    EXPECT_NE(refusal(tar.substr(0, length)), "") << length;
  }
  for (const std::string& packed : {gzip(tar), zstd(tar)}) {
    EXPECT_NE(refusal(packed.substr(0, packed.size() - 10)), "");
    EXPECT_NE(refusal(packed.substr(0, packed.size() / 2)), "");
  }
  EXPECT_NE(refusal("no archive at all, but some text that is long enough to be one"s +
                    std::string(1000, '.')),
            "");
}

TEST_F(Layers, WhatStandsBehindTheEndIsInTheDigest) {
  const std::string tar = TarBuilder().file("a").finish();
  EXPECT_EQ(add_bytes(tar + "garbage").unpacked_digest, digest_of(tar + "garbage"));
  EXPECT_EQ(add_bytes(gzip(tar) + "garbage").digest, digest_of(gzip(tar) + "garbage"));
}

TEST_F(Layers, AStopRequestEndsTheReading) {
  write_test_file(scratch_ / "layer.tar", TarBuilder().file("a").finish());
  const sys::UniqueFd file = sys::open_path((scratch_ / "layer.tar").native(), O_RDONLY);
  std::stop_source source;
  TarStream stream(file.get(), {1 << 20, 10}, {.deadline = {}, .stop = source.get_token()});
  source.request_stop();
  EXPECT_THROW(stream.next(), SandboxCancelled);
}

}  // namespace
}  // namespace casemate::images
