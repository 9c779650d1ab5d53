#pragma once

// What a program's user left in a directory, as one stream of bytes, and back.
//
// Kept: directories, regular files (their holes stay holes, names of one file stay one file),
// symbolic links and FIFOs, each with its name of any bytes, its permission bits and its time of
// modification to the nanosecond. Not kept: owners (there is one), set-user-id and set-group-id
// bits, extended attributes, sockets, whose listeners are no files.
//
// Both are done with the rights of the caller, who is to be the programs' user, by descriptors that
// follow no link: reading gives nothing that a program could not read, and whatever the bytes say,
// writing makes nothing that a program could not make.

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace casemate::guest {

// Takes the next bytes. What it throws passes through.
using PutBytes = std::function<void(std::string_view)>;
// Fills all of it. What it throws, where there are no more, passes through.
using GetBytes = std::function<void(std::span<char>)>;

// `directory` is absolute. Passed over at its top: directories of other users and mount points,
// which are the calls'. Throws `OperationFailed` whose text is the path that cannot be kept:
// ENAMETOOLONG for one of more than 4,095 bytes, EPERM for what is another user's, EINVAL for a
// device, E2BIG for more files with several names and directories that the user closed to itself
// than can be remembered (16 MiB of paths), else the errno. What the user closed to itself is
// opened to be read, and closed again; where this is killed on the way it stays open.
//
// For a tree that nobody changes meanwhile; when somebody does, the archive has one or the other.
void archive_tree(const std::string& directory, const PutBytes& put);

// Into a directory that holds nothing of those names. Takes exactly the bytes that `archive_tree`
// put. Throws `OperationFailed`: EBADMSG for bytes that no archive has, EEXIST where something is
// already, else the errno, with the path as its text; what was made so far stays.
void unpack_tree(const std::string& directory, const GetBytes& get);

}  // namespace casemate::guest
