#pragma once

#include <span>

namespace casemate::sys {

// Asks the kernel to back this memory with huge pages where it lies on whole ones, before it is
// first written to: of ten megabytes each page of 4 KiB costs a page fault, all of them together as
// much as sending them. Of no effect where that is switched off. Never throws.
void prefer_huge_pages(std::span<char> memory) noexcept;

}  // namespace casemate::sys
