#include "casemate/backends/microvm/initramfs.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

namespace casemate::microvm {
namespace {

struct Found {
  std::string content;
  unsigned mode = 0;
};

// By a reader that is not ours.
std::map<std::string, Found> read_back(const std::string& bytes) {
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  archive_read_support_format_cpio(reader.get());
  EXPECT_EQ(archive_read_open_memory(reader.get(), bytes.data(), bytes.size()), ARCHIVE_OK);
  std::map<std::string, Found> found;
  archive_entry* entry = nullptr;
  while (archive_read_next_header(reader.get(), &entry) == ARCHIVE_OK) {
    Found file{.content = std::string(static_cast<std::size_t>(archive_entry_size(entry)), '\0'),
               .mode = archive_entry_mode(entry)};
    archive_read_data(reader.get(), file.content.data(), file.content.size());
    EXPECT_EQ(archive_entry_uid(entry), 0);
    EXPECT_EQ(archive_entry_mtime(entry), 0);
    found.emplace(archive_entry_pathname(entry), std::move(file));
  }
  return found;
}

TEST(Initramfs, IsReadBackByAnotherReader) {
  const std::string bytes = write_initramfs({
      {.name = "init", .content = std::string("\177ELF\0x", 6), .mode = 0755},
      {.name = "modules/a.ko", .content = "abc"},
      {.name = "modules/order", .content = ""},
  });
  const auto found = read_back(bytes);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found.at("init").content, std::string("\177ELF\0x", 6));
  EXPECT_EQ(found.at("init").mode, 0100755U);
  EXPECT_EQ(found.at("modules").mode, 0040755U);
  EXPECT_EQ(found.at("modules/a.ko").content, "abc");
  EXPECT_EQ(found.at("modules/a.ko").mode, 0100644U);
  EXPECT_EQ(found.at("modules/order").content, "");
}

TEST(Initramfs, TheSameFilesGiveTheSameBytes) {
  const std::vector<InitramfsFile> files{{.name = "a/b/c", .content = "1"}};
  EXPECT_EQ(write_initramfs(files), write_initramfs(files));
}

}  // namespace
}  // namespace casemate::microvm
