#pragma once

// Small files and directories by descriptor. Every function throws `std::system_error` naming its
// subject.

#include <cstdint>
#include <optional>
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
