#pragma once

// The bytes of an archive (tree_archive.h), for this folder only.
//
// A tree is a `Root`'s attributes, then entries in any order, each a type and what stands beside
// it. `enter` makes a directory the one that the next entries are in, until `leave`; a `leave`
// without an `enter` ends the tree. Numbers are little-endian, a string is its u32 length and its
// bytes.

#include <cstddef>
#include <cstdint>

namespace casemate::guest {

enum class ArchiveEntry : std::uint8_t {
  enter = 1,  // name, attributes
  leave = 2,
  file = 3,  // name, attributes, u64 size, u8 has other names, extents {u64 at, u64 bytes, data};
             // one of 0 bytes is the last
  symlink = 4,     // name, attributes, target
  fifo = 5,        // name, attributes
  other_name = 6,  // name, u32 number of the file among those with other names, from 0
};

// Attributes are u32 permission bits, u64 seconds (two's complement), u32 nanoseconds.
inline constexpr std::size_t kAttributeBytes = 16;
inline constexpr unsigned kKeptModeBits = 01777;
// Of the files with other names and the directories that their owner closed to itself, which are
// remembered on the way: the sum of their paths and of what each takes beside it. Counted alike by
// who reads and who writes, so that nothing is taken which could not be put back.
inline constexpr std::size_t kMaxRememberedBytes = 16 << 20;
inline constexpr std::size_t kRememberedEntry = 64;
// What a directory's owner needs to reach what is in it.
inline constexpr unsigned kPassable = 0500;
// What is read and written at a time.
inline constexpr std::size_t kArchivePiece = 64 * 1024;

}  // namespace casemate::guest
