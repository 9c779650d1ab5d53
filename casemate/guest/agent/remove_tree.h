#pragma once

#include <cstdint>
#include <string>

namespace casemate::guest {

// Removes `name` (one component) in the directory `directory`, and everything below it, following
// no link. Returns 0, also when it was missing, or the errno of the first entry that could not be
// removed; what was removed before stays removed.
//
// Holds against hostile trees: any depth (iterative, three descriptors at most, paths are never
// built), any width, names of any bytes. When entries are moved about while it works it never
// leaves the tree: on the way up each directory is compared with the one it came through, and a
// mismatch starts over from the top, a bounded number of times, then gives EAGAIN. So it does once
// it met more than `most` entries below `name`: where programs live, what they go on to create
// would hold it for ever. Whoever asks again goes on where it ended.
// Memory: 16 bytes and the name for each level.
int remove_tree(int directory, const std::string& name, std::uint64_t most = UINT64_MAX) noexcept;

}  // namespace casemate::guest
