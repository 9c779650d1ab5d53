#include "casemate/sys/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace casemate::sys {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;

// Bytes of those from `begin` on that are advised so (proc(5): VmFlags).
std::size_t advised(std::uintptr_t begin) {
  std::ifstream maps("/proc/self/smaps");
  std::size_t bytes = 0;
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      first = from;
      end = to;
    } else if (line.starts_with("VmFlags:") && line.find(" hg") != line.npos && first >= begin &&
               end <= begin + kBytes) {
      bytes += end - first;
    }
  }
  return bytes;
}

TEST(HugePages, AreAskedForWhereMemoryLiesOnWholeOnes) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this kernel has none";
  }
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  char* bytes = static_cast<char*>(memory);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  prefer_huge_pages({bytes, 4096});
  EXPECT_EQ(advised(begin), 0U) << "less than one";
  prefer_huge_pages({bytes + 1, kBytes - 1});
  EXPECT_GE(advised(begin), kBytes - (std::size_t{4} << 20));
  EXPECT_LT(advised(begin), kBytes) << "the first is not whole";
  bytes[kBytes / 2] = 'x';
  EXPECT_EQ(bytes[kBytes / 2], 'x');
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace casemate::sys
