#pragma once

#include <string>

namespace casemate::guest {

// What calls that are told apart by user id have in common on disk, and what one of them leaves
// there.

// Makes a directory the group's: what is made in it later is the group's too and may be written by
// it, whatever the maker's umask. Throws `std::system_error`.
void share_directory(const std::string& path, unsigned group, unsigned mode);

// Removes what `user` owns directly in /tmp, /var/tmp, /dev/shm and /dev/mqueue, with all below it.
// Returns whether all of it is gone.
bool remove_temporary_files(unsigned user) noexcept;

// Removes the System V shared memory, semaphores and message queues of the calling process's
// effective user.
void remove_ipc_objects() noexcept;

}  // namespace casemate::guest
