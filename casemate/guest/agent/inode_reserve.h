#pragma once

#include <string>

namespace casemate::guest {

// Inodes of the quota that are for calls: empty directories of root's, each of which becomes one of
// a call's. A program that filled the disk with files would leave a sandbox in which nobody can be
// called any more, not even to clean up: a call gives its own inodes back only after its end, when
// its mounts are gone. What is given back can be had by a program that runs in that moment, so one
// that keeps filling the disk for as long as it lives can use the reserve up.
//
// `quota` is the root of the quota file system.
inline constexpr unsigned kReservedInodes = 24;  // of four calls

// Makes what is missing, as far as there is room.
void fill_inode_reserve(int quota) noexcept;
// Gives one that place and mode, below `quota`. Whether there was one, with errno; EEXIST where
// something is there.
bool use_reserved_inode(int quota, const std::string& path, unsigned mode) noexcept;

}  // namespace casemate::guest
