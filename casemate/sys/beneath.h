#pragma once

// Files and directories reached from a held directory, never through a link: check and use are one
// act. For trees in which somebody else may swap entries at any time.

#include <dirent.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

enum class BeneathMethod : std::uint8_t {
  kernel,        // openat2, Linux 5.6; `by_component` where it is missing or filtered
  by_component,  // one openat a component, none of them following a link
};

// Opens `path` below `directory`. `flags` as for open (close-on-exec is added), without O_CREAT and
// O_NOFOLLOW. Throws `std::system_error`: ELOOP when a component, the last one included, is a link;
// ENOTDIR when another is no directory; EXDEV for an absolute path or a ".." component (also where
// it would stay inside); EINVAL for an empty path or one with a NUL. "." and empty components are
// passed over. Mount points are crossed: who mounts below is trusted.
UniqueFd open_beneath(int directory, std::string_view path, int flags,
                      BeneathMethod method = BeneathMethod::kernel);

// Opens a path of the operator's, links followed (close-on-exec is added). Throws
// `std::system_error` that names it.
UniqueFd open_path(const std::string& path, int flags);

// What `name`, a single component, is in `directory`; the link itself if it is one. Absent when
// missing. Throws `std::system_error`.
std::optional<struct stat> entry_in(int directory, const std::string& name);

// The same for an open descriptor.
struct stat status_of(int fd);

// True when `inner` is `outer` or lies below it, judged by device and inode on the way up to the
// root. Throws `std::system_error`.
bool is_within(int inner, int outer);

// One entry of a directory, without "." and "..".
struct DirectoryEntry {
  std::string name;
  unsigned char type = DT_UNKNOWN;  // DT_REG, DT_DIR, DT_LNK ...; never DT_UNKNOWN
};

// The entries of `directory` (opened for reading; its position is used up), in the kernel's order.
// Stops after `max_entries`. Entries that vanish meanwhile are left out; more of them than
// `max_entries` are EAGAIN. Throws `std::system_error`.
std::vector<DirectoryEntry> read_directory(UniqueFd directory, std::size_t max_entries);

// Reads to the end of `fd`; absent when there are more than `max_bytes`, of which at most one byte
// more is read. Throws `std::system_error`.
std::optional<std::string> read_at_most(int fd, std::uint64_t max_bytes);

}  // namespace casemate::sys
