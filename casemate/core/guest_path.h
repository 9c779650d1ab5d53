#pragma once

// Rules on guest paths as pure functions, always in POSIX grammar. They refuse by shape before
// anything is asked of a guest; the guest enforces again with descriptors (`openat2` beneath, no
// links), because a name that is valid here may be a link there.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/core/sandbox_entry.h"

namespace casemate {

// `path` joined to `working_directory` and normalised, when it is that directory or below it.
// "" and "." mean the directory itself; an absolute path inside is fine; ".." that stays inside is
// fine. Throws `SandboxPathRefused` for a backslash, a NUL, or a path outside (compared by
// components: /a/b2 is not under /a/b). The text never repeats a refused path.
std::string confine_guest_path(std::string_view path, std::string_view working_directory);

// `path` relative to `base`, both normalised: "" when equal, absent when outside.
std::optional<std::string> guest_path_relative_to(std::string_view path, std::string_view base);

// Every directory from "/" down through `working_directory` to `path`, in that order.
std::vector<std::string> guest_directory_chain(std::string_view path,
                                               std::string_view working_directory);

// No-follow, unconfined lookup of an absolute guest path; absent when missing.
using GuestStat = std::function<std::optional<SandboxEntry>(const std::string& absolute_path)>;

enum class IncludeSelf : std::uint8_t { no, yes };

// Walks the directories above `path` (with `yes`, `path` too). A missing component ends the walk;
// a link is `SandboxPathRefused`; any other non-directory is `SandboxFileError` with ENOTDIR.
void refuse_symlinked_parents(const GuestStat& stat, std::string_view path,
                              std::string_view working_directory,
                              IncludeSelf include_self = IncludeSelf::no);

// Where a write goes: confined, not the working directory itself, no linked parent, and the leaf
// is no link (a directory or other leaf is not refused here). Returns the absolute path.
std::string confine_guest_write_path(const GuestStat& stat, std::string_view path,
                                     std::string_view working_directory);

// POSIX normalisation: duplicate slashes, "." and ".." resolved by text; "/.." is "/"; no
// trailing slash except for "/".
std::string normalise_guest_path(std::string_view path);

// One word quoted for a POSIX shell.
std::string shell_quote(std::string_view word);
// Words quoted and joined by spaces.
std::string shell_join(const std::vector<std::string>& words);

}  // namespace casemate
