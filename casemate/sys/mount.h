#pragma once

// The mount calls that work by descriptor. Every function throws `std::system_error` naming its
// subject. Attributes are only ever added: what a stricter namespace locked stays locked.

#include <cstdint>
#include <string>

#include "casemate/sys/unique_fd.h"

namespace casemate::sys {

struct MountAttributes {
  bool read_only = false;
  bool no_suid = true;
  bool no_dev = true;
  bool no_exec = false;
};

// A new tmpfs, attached nowhere yet: `size` bytes, `inodes` (0: the kernel's own bound) and the
// mode of its root.
struct TmpfsOptions {
  std::uint64_t size = 0;
  std::uint64_t inodes = 0;
  unsigned mode = 0755;
};
UniqueFd make_tmpfs(const TmpfsOptions& options, const MountAttributes& attributes);

// What `upper` holds laid over what `lower` holds, two directories of this mount namespace,
// attached nowhere yet: read-only, nosuid, nodev. A device 0:0 in `upper` hides what is below it.
// What is mounted in either is not seen. Needs Linux 5.11 outside of the first user namespace.
UniqueFd make_merged(int upper, int lower);

// A new view of the caller's pid namespace, attached nowhere yet; nosuid, nodev, noexec.
UniqueFd make_proc();
// One that shows nothing but processes, and of those only what the reader might trace (its own
// included). Linux 5.8.
UniqueFd make_own_proc();

// A new pseudo terminal file system of at most `most` terminals, attached nowhere yet; its `ptmx`
// is for everybody, each terminal for who opened it. nosuid, noexec.
UniqueFd make_terminals(std::uint64_t most);

// A detached copy of the mount tree at `path` (below `directory`), mounts below it included.
UniqueFd clone_tree(int directory, const char* path);
// The same of what is open, which is of this process's mount namespace.
UniqueFd clone_tree(int opened);

// Adds attributes to a detached tree, mounts below it included.
void restrict_tree(int tree, const MountAttributes& attributes);

// Attaches a detached tree at `path` below `directory`; links in `path` are followed unless the
// caller opened it otherwise.
void attach(int tree, int directory, const char* path);

// The same, but a path that ends in a link is refused (ENOTDIR).
void attach_unlinked(int tree, int directory, const char* path);

// A bind of a directory or file that is already in this mount namespace.
void bind(int source_directory, const char* source, int target_directory, const char* target);

// Adds attributes to the one mount whose root `mount` is a descriptor of; not to mounts below it.
void restrict_mount(int mount, const MountAttributes& attributes);

// Makes every mount of this namespace private, so that nothing propagates in or out.
void make_all_private();
// Lets what happens to the mounts elsewhere propagate in, and nothing out.
void make_all_slave();

// Lets what is mounted below the mount at `path` appear in every namespace copied from this one
// from now on, and the other way round; or lets that end.
void share_mount(const char* path);
void unshare_mount(const char* path);

// Makes the directory `new_root` refers to (a mount) this process's root and drops the old one,
// with all that was mounted in it.
void replace_root(int new_root);

// Detaches the mount at `path`.
void detach(const char* path);

}  // namespace casemate::sys
