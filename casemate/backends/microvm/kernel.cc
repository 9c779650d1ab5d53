#include "casemate/backends/microvm/kernel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/file.h"

namespace casemate::microvm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kImagePrefix = "vmlinuz-";
constexpr std::size_t kMaxModuleBytes = 16 << 20;
constexpr std::size_t kMaxBuiltinBytes = 4 << 20;

// The two buses that a machine's devices are on, the stream, the disk, the image, and what merges a
// large directory of an image with ours.
constexpr std::string_view kNeeded[] = {"virtio_mmio", "virtio_pci", "virtio_console",
                                        "virtio_blk",  "squashfs",   "overlay"};

// Modules are called with either.
std::string plain_name(std::string_view name) {
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  return plain;
}

bool is_for_clouds(const Kernel& kernel) {
  return kernel.release.find("cloud") != kernel.release.npos;
}

// Numbers in names as numbers: 6.1.0-9 is older than 6.1.0-57.
bool is_older(const Kernel& left, const Kernel& right) {
  if (is_for_clouds(left) != is_for_clouds(right)) return is_for_clouds(right);
  return strverscmp(left.release.c_str(), right.release.c_str()) < 0;
}

// Of every module below the directory, by its plain name. Compressed ones are named for what they
// are.
std::map<std::string, std::string> module_index(const std::string& directory) {
  std::map<std::string, std::string> index;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    const std::size_t suffix = name.find(".ko");
    if (suffix == name.npos || !entry->is_regular_file(error)) continue;
    index.emplace(plain_name(name.substr(0, suffix)), entry->path());
  }
  return index;
}

// Paths as "kernel/drivers/virtio/virtio.ko", one a line.
std::set<std::string> builtin_modules(const std::string& directory) {
  std::set<std::string> names;
  const auto text =
      sys::read_file_if_there(AT_FDCWD, (directory + "/modules.builtin").c_str(), kMaxBuiltinBytes);
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::string_view name = line.substr(line.rfind('/') + 1);
    names.insert(plain_name(name.substr(0, name.find(".ko"))));
  }
  return names;
}

class Closure {
 public:
  explicit Closure(const Kernel& kernel)
      : kernel_(kernel),
        index_(module_index(kernel.modules)),
        done_(builtin_modules(kernel.modules)) {}

  std::vector<std::string> files() {
    for (const std::string_view name : kNeeded) add(plain_name(name));
    return std::move(files_);
  }

 private:
  void add(const std::string& name) {
    if (!done_.insert(name).second) return;
    const auto found = index_.find(name);
    if (found == index_.end()) {
      throw SandboxUnavailable(
          fmt::format("the kernel {} has no module {}", kernel_.release, escape_for_display(name)),
          "use a distribution's kernel for virtual machines (Debian: linux-image-cloud-amd64)");
    }
    if (!found->second.ends_with(".ko")) {
      throw SandboxUnavailable(
          fmt::format("the modules of the kernel {} are compressed ({})", kernel_.release,
                      escape_for_display(found->second)),
          "use one whose modules are not (Debian 12: linux-image-cloud-amd64)");
    }
    const std::string content = sys::read_file_at(AT_FDCWD, found->second.c_str(), kMaxModuleBytes);
    for (const std::string& need : module_needs(found->second, content)) add(need);
    files_.push_back(found->second);
  }

  const Kernel& kernel_;
  const std::map<std::string, std::string> index_;
  // Built in, or added.
  std::set<std::string> done_;
  std::vector<std::string> files_;
};

template <typename Number>
Number number_at(const std::string& content, std::uint64_t at) {
  Number value{};
  if (at > content.size() || content.size() - at < sizeof value) {
    throw SandboxUnavailable("a kernel module is cut short");
  }
  std::memcpy(&value, content.data() + at, sizeof value);
  return value;
}

}  // namespace

std::optional<Kernel> find_kernel(const std::string& root) {
  std::optional<Kernel> best;
  std::error_code error;
  for (fs::directory_iterator entry(root + "/boot", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kImagePrefix)) continue;
    Kernel kernel{
        .image = entry->path(), .modules = "", .release = name.substr(kImagePrefix.size())};
    for (const char* place : {"/lib/modules/", "/usr/lib/modules/"}) {
      std::error_code missing;
      const std::string directory = root + place + kernel.release;
      if (fs::is_directory(directory, missing)) kernel.modules = directory;
    }
    if (!kernel.modules.empty() && (!best || is_older(*best, kernel))) best = kernel;
  }
  return best;
}

std::vector<std::string> module_files(const Kernel& kernel) { return Closure(kernel).files(); }

// An ELF file of this machine's kind whose section .modinfo holds strings, "depends=a,b" among
// them.
std::vector<std::string> module_needs(const std::string& file, const std::string& content) {
  try {
    if (!content.starts_with("\177ELF")) {
      throw SandboxUnavailable("it is no ELF file");
    }
    const auto sections = number_at<std::uint64_t>(content, 0x28);
    const auto entry_bytes = number_at<std::uint16_t>(content, 0x3a);
    const auto count = number_at<std::uint16_t>(content, 0x3c);
    const auto names_index = number_at<std::uint16_t>(content, 0x3e);
    const auto section = [&](std::uint64_t index) { return sections + index * entry_bytes; };
    const auto names = number_at<std::uint64_t>(content, section(names_index) + 0x18);
    for (std::uint64_t index = 0; index < count; ++index) {
      const auto name = names + number_at<std::uint32_t>(content, section(index));
      if (name >= content.size() ||
          std::strncmp(content.c_str() + name, ".modinfo", content.size() - name) != 0) {
        continue;
      }
      const auto from = number_at<std::uint64_t>(content, section(index) + 0x18);
      const auto size = number_at<std::uint64_t>(content, section(index) + 0x20);
      if (from > content.size() || content.size() - from < size) {
        throw SandboxUnavailable("a kernel module is cut short");
      }
      std::string_view rest = std::string_view(content).substr(from, size);
      std::vector<std::string> needs;
      while (!rest.empty()) {
        std::string_view entry = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
        if (!entry.starts_with("depends=")) continue;
        entry.remove_prefix(8);
        while (!entry.empty()) {
          const std::string_view need = entry.substr(0, entry.find(','));
          entry.remove_prefix(std::min(need.size() + 1, entry.size()));
          if (!need.empty()) needs.push_back(plain_name(need));
        }
      }
      return needs;
    }
    throw SandboxUnavailable("it says nothing of itself");
  } catch (const SandboxUnavailable& error) {
    throw SandboxUnavailable(fmt::format("the kernel module {} cannot be used: {}",
                                         escape_for_display(file), error.message()));
  }
}

}  // namespace casemate::microvm
