#include "casemate/sys/memory.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace casemate::sys {
namespace {

// Of x86-64 and, with pages of 4 KiB, arm64.
constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;

}  // namespace

void prefer_huge_pages(std::span<char> memory) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (begin + memory.size()) / kHugePage * kHugePage;
  if (first >= end) return;
  madvise(memory.data() + (first - begin), end - first, MADV_HUGEPAGE);
}

}  // namespace casemate::sys
