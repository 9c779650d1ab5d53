#pragma once

namespace casemate::guest {

// Inodes of the quota that no program can have: empty files of root's, given up one by one for the
// directories of calls. A program that filled the disk with files would leave a sandbox in which
// nobody can be called any more, not even to clean up: a call gives its own inodes back only after
// its end, when its mounts are gone.
//
// `quota` is the root of the quota file system.
inline constexpr unsigned kReservedInodes = 24;  // of four calls

// Makes what is missing, as far as there is room.
void fill_inode_reserve(int quota) noexcept;
// Whether there was one to be given up.
bool give_up_reserved_inode(int quota) noexcept;

}  // namespace casemate::guest
