#include "casemate/backends/microvm/kernel.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/errors.h"
#include "tests/support/expect_refusal.h"

namespace casemate::microvm {
namespace {

namespace fs = std::filesystem;

// The least that a module's file has: a header, two sections, their names, what it says of itself.
std::string module_that_needs(std::string_view needs) {
  const std::string names = std::string("\0.shstrtab\0.modinfo\0", 20);
  const std::string info =
      std::string("license=GPL\0depends=", 20) + std::string(needs) + std::string("\0name=m\0", 8);
  std::string file(64, '\0');
  std::memcpy(file.data(), "\177ELF", 4);
  const std::uint64_t names_at = file.size();
  file += names;
  const std::uint64_t info_at = file.size();
  file += info;
  const std::uint64_t sections_at = file.size();
  const auto put = [&](std::uint64_t at, auto value) {
    if (file.size() < at + sizeof value) file.resize(at + sizeof value);
    std::memcpy(file.data() + at, &value, sizeof value);
  };
  const auto section = [&](std::uint64_t index, std::uint32_t name, std::uint64_t at,
                           std::uint64_t size) {
    put(sections_at + index * 64, name);
    put(sections_at + index * 64 + 0x18, at);
    put(sections_at + index * 64 + 0x20, size);
    put(sections_at + index * 64 + 0x38, std::uint64_t{0});
  };
  section(0, 1, names_at, names.size());
  section(1, 11, info_at, info.size());
  put(0x28, sections_at);
  put(0x3a, std::uint16_t{64});
  put(0x3c, std::uint16_t{2});
  put(0x3e, std::uint16_t{0});
  return file;
}

class KernelTest : public testing::Test {
 protected:
  KernelTest() {
    char name[] = "/tmp/casemate-kernel-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~KernelTest() override { fs::remove_all(root_); }

  void add_kernel(const std::string& release) {
    write("boot/vmlinuz-" + release, "kernel");
    fs::create_directories(root_ / "lib/modules" / release);
  }
  void write(const std::string& path, const std::string& content) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << content;
  }
  Kernel with_modules(const std::string& suffix = ".ko") {
    add_kernel("6.1.0-1-cloud-amd64");
    const std::string drivers = "lib/modules/6.1.0-1-cloud-amd64/kernel/drivers/";
    for (const auto& [name, needs] :
         std::vector<std::pair<std::string, std::string>>{{"virtio_ring", ""},
                                                          {"virtio", "virtio_ring"},
                                                          {"virtio_mmio", "virtio,virtio_ring"},
                                                          {"virtio_pci", "virtio_ring,virtio"},
                                                          {"virtio_console", "virtio"},
                                                          {"virtio_blk", "virtio"},
                                                          {"squashfs", ""}}) {
      write(drivers + name + suffix, module_that_needs(needs));
    }
    write("lib/modules/6.1.0-1-cloud-amd64/modules.builtin", "kernel/fs/overlayfs/overlay.ko\n");
    return *find_kernel(root_.string());
  }

  fs::path root_;
};

TEST_F(KernelTest, OneWithoutModulesIsNone) {
  EXPECT_EQ(find_kernel(root_.string()), std::nullopt);
  write("boot/vmlinuz-6.1.0-1-amd64", "kernel");
  EXPECT_EQ(find_kernel(root_.string()), std::nullopt);
}

TEST_F(KernelTest, TheNewestIsTakenByItsNumbersAndOneForCloudsFirst) {
  add_kernel("6.1.0-9-amd64");
  add_kernel("6.1.0-57-amd64");
  EXPECT_EQ(find_kernel(root_.string())->release, "6.1.0-57-amd64");
  add_kernel("6.1.0-3-cloud-amd64");
  EXPECT_EQ(find_kernel(root_.string())->release, "6.1.0-3-cloud-amd64");
}

TEST_F(KernelTest, ModulesComeAfterWhatTheyNeedAndEachOnce) {
  std::vector<std::string> names;
  for (const std::string& path : module_files(with_modules())) {
    names.push_back(fs::path(path).stem());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"virtio_ring", "virtio", "virtio_mmio", "virtio_pci",
                                             "virtio_console", "virtio_blk", "squashfs"}));
}

TEST_F(KernelTest, AMissingOrCompressedModuleIsNamed) {
  const Kernel kernel = with_modules();
  fs::remove(root_ / "lib/modules/6.1.0-1-cloud-amd64/kernel/drivers/squashfs.ko");
  expect_refusal<SandboxUnavailable>([&] { module_files(kernel); }, "no module squashfs");
  write("lib/modules/6.1.0-1-cloud-amd64/kernel/drivers/squashfs.ko.xz", "x");
  expect_refusal<SandboxUnavailable>([&] { module_files(kernel); }, "compressed");
}

TEST(ModuleNeeds, AFileThatIsNoModuleIsRefusedAndNeverReadBeyondItsEnd) {
  const std::string whole = module_that_needs("a-b,c");
  EXPECT_EQ(module_needs("m.ko", whole), (std::vector<std::string>{"a_b", "c"}));
  EXPECT_EQ(module_needs("m.ko", module_that_needs("")), std::vector<std::string>{});
  for (std::size_t size = 0; size + 24 < whole.size(); ++size) {
    EXPECT_THROW(module_needs("m.ko", whole.substr(0, size)), SandboxUnavailable) << size;
  }
  for (std::size_t at = 0x28; at < 0x40; ++at) {
    std::string other = whole;
    other[at] = '\xff';
    try {
      module_needs("m.ko", other);
    } catch (const SandboxUnavailable&) {
    }
  }
}

}  // namespace
}  // namespace casemate::microvm
