#pragma once

// Whether a configuration file is this user's word: it may hold commands ([host_tools.NAME]), so
// that whoever may change it runs what he likes in this user's name.

#include <optional>
#include <string>

namespace casemate::app {

// Throws `ConfigInvalid` that names the file or directory, its owner, its mode and the command that
// mends it, unless the open `file` and every directory above it belong to this user or root and are
// writable for nobody else. As ssh and sudo have it:
//  - `path` is shown; what counts is where the file is, its links followed.
//  - Directories are looked at up to `home` where the file is below it, else up to the root. One
//    that is sticky (/tmp) may be writable for others: they cannot replace what is not theirs.
//  - Writable for a group is fine where the group is named like the owner and has nobody else in
//    it, as Debian makes one for each user.
//  - Pipes and character devices (`<(...)`, /dev/null) pass: whoever starts this chose them.
// Not looked at: the directories of links that led there, and what mounts lie above.
void refuse_what_others_may_write(int file, const std::string& path,
                                  const std::optional<std::string>& home);

}  // namespace casemate::app
