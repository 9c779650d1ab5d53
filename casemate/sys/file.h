#pragma once

// Small files and directories by descriptor. Every function throws `std::system_error` naming its
// subject.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

// openat with O_CLOEXEC added.
UniqueFd open_at(int directory, const char* path, int flags, unsigned mode = 0);

// Another descriptor of the same open file, close-on-exec.
UniqueFd duplicate(int descriptor);

// The content of a file of at most `max_bytes`; more is EFBIG.
std::string read_file_at(int directory, const char* path, std::size_t max_bytes);
// Absent where there is no such file.
std::optional<std::string> read_file_if_there(int directory, const char* path,
                                              std::size_t max_bytes);

// Writes all of `bytes`; `what` is what it was doing when it throws. A file that takes none of them
// and says no error is EIO: one on FUSE with direct I/O may answer so as often as it is asked.
void write_all(int file, std::span<const char> bytes, const char* what);
// The same from `offset` on; the file's position stays.
void write_all_at(int file, std::span<const char> bytes, std::uint64_t offset, const char* what);

// Creates (or replaces the content of) a file.
void write_file_at(int directory, const char* path, std::string_view content, unsigned mode);
// Writes to a file that must be there, in one write: what kernel interfaces want.
void write_control_file_at(int directory, const char* path, std::string_view content);

// Quiet when the directory is there already.
void make_directory_at(int directory, const char* path, unsigned mode);

// Names in a directory, without "." and "..", in no order.
std::vector<std::string> list_directory_at(int directory, const char* path);

// The path a descriptor refers to now, as this process sees it; " (deleted)" is cut off and
// reported as absent.
std::optional<std::string> path_of(int descriptor);

}  // namespace casemate::sys
