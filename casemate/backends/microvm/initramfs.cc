#include "casemate/backends/microvm/initramfs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>

#include "casemate/guest/machine/machine_messages.h"
#include "casemate/sys/file.h"

namespace casemate::microvm {
namespace {

constexpr std::size_t kMaxModuleBytes = 16 << 20;
constexpr std::size_t kAlignment = 4;

class Archive {
 public:
  void add(std::string_view name, unsigned mode, std::string_view content) {
    if (content.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw std::length_error("a file too large for an initial file system");
    }
    // Magic, inode, mode, uid, gid, links, time, size, two devices of two numbers each, the name's
    // length with its NUL, a checksum that this form has not.
    bytes_ += fmt::format(
        "070701{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}"
        "{:08X}{:08X}",
        ++inode_, mode, 0, 0, 1, 0, content.size(), 0, 0, 0, 0, name.size() + 1, 0);
    bytes_ += name;
    bytes_ += '\0';
    align();
    bytes_ += content;
    align();
  }

  std::string finish() {
    add("TRAILER!!!", 0, "");
    return std::move(bytes_);
  }

 private:
  void align() { bytes_.append((kAlignment - bytes_.size() % kAlignment) % kAlignment, '\0'); }

  std::string bytes_;
  std::uint32_t inode_ = 0;
};

}  // namespace

std::string write_initramfs(const std::vector<InitramfsFile>& files) {
  Archive archive;
  std::set<std::string> directories;
  for (const InitramfsFile& file : files) {
    for (std::size_t end = file.name.find('/'); end != file.name.npos;
         end = file.name.find('/', end + 1)) {
      const std::string directory = file.name.substr(0, end);
      if (directories.insert(directory).second) archive.add(directory, S_IFDIR | 0755, "");
    }
    archive.add(file.name, S_IFREG | file.mode, file.content);
  }
  return archive.finish();
}

std::string machine_initramfs(std::string_view guest_program,
                              const std::vector<std::string>& module_files) {
  std::vector<InitramfsFile> files;
  files.push_back({.name = "init", .content = std::string(guest_program), .mode = 0755});
  std::string order;
  const std::string directory = &guest::kModuleDirectory[1];
  for (const std::string& path : module_files) {
    const std::string name = path.substr(path.rfind('/') + 1);
    order += name + "\n";
    files.push_back({.name = directory + "/" + name,
                     .content = sys::read_file_at(AT_FDCWD, path.c_str(), kMaxModuleBytes)});
  }
  files.push_back({.name = &guest::kModuleOrder[1], .content = order});
  return write_initramfs(files);
}

}  // namespace casemate::microvm
