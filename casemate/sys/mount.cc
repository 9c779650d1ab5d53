#include "casemate/sys/mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "casemate/sys/error.h"

namespace casemate::sys {
namespace {

unsigned attribute_bits(const MountAttributes& attributes) {
  unsigned bits = 0;
  if (attributes.read_only) bits |= MOUNT_ATTR_RDONLY;
  if (attributes.no_suid) bits |= MOUNT_ATTR_NOSUID;
  if (attributes.no_dev) bits |= MOUNT_ATTR_NODEV;
  if (attributes.no_exec) bits |= MOUNT_ATTR_NOEXEC;
  return bits;
}

void set_option(int context, const char* key, const std::string& value) {
  if (fsconfig(context, FSCONFIG_SET_STRING, key, value.c_str(), 0) < 0) {
    throw_errno(std::string("setting ") + key + "=" + value + " of a new file system");
  }
}

UniqueFd create(int context, const char* type, unsigned bits) {
  if (fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) < 0) {
    throw_errno(std::string("creating a ") + type);
  }
  UniqueFd mount(fsmount(context, FSMOUNT_CLOEXEC, bits));
  if (!mount) throw_errno(std::string("mounting a ") + type);
  return mount;
}

UniqueFd open_context(const char* type) {
  UniqueFd context(fsopen(type, FSOPEN_CLOEXEC));
  if (!context) throw_errno(std::string("opening a ") + type);
  return context;
}

}  // namespace

UniqueFd make_tmpfs(const TmpfsOptions& options, const MountAttributes& attributes) {
  const UniqueFd context = open_context("tmpfs");
  char mode[16];
  std::snprintf(mode, sizeof mode, "%o", options.mode);
  set_option(context.get(), "mode", mode);
  set_option(context.get(), "size", std::to_string(options.size));
  if (options.inodes > 0) {
    set_option(context.get(), "nr_inodes", std::to_string(options.inodes));
  }
  return create(context.get(), "tmpfs", attribute_bits(attributes));
}

UniqueFd make_merged(int upper, int lower) {
  const UniqueFd context = open_context("overlay");
  set_option(context.get(), "lowerdir",
             "/proc/self/fd/" + std::to_string(upper) + ":/proc/self/fd/" + std::to_string(lower));
  return create(context.get(), "overlay", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

UniqueFd make_proc() {
  const UniqueFd context = open_context("proc");
  return create(context.get(), "proc", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

UniqueFd make_own_proc() {
  const UniqueFd context = open_context("proc");
  set_option(context.get(), "subset", "pid");
  set_option(context.get(), "hidepid", "invisible");
  return create(context.get(), "proc", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

UniqueFd make_terminals(std::uint64_t most) {
  const UniqueFd context = open_context("devpts");
  set_option(context.get(), "ptmxmode", "666");
  set_option(context.get(), "mode", "600");
  set_option(context.get(), "max", std::to_string(most));
  return create(context.get(), "devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

UniqueFd clone_tree(int directory, const char* path) {
  UniqueFd tree(
      open_tree(directory, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | unsigned{AT_RECURSIVE}));
  if (!tree) throw_errno(std::string("cloning the mounts at ") + path);
  return tree;
}

namespace {

void add_attributes(int mount, const MountAttributes& attributes, unsigned flags) {
  mount_attr change{};
  change.attr_set = attribute_bits(attributes);
  if (mount_setattr(mount, "", AT_EMPTY_PATH | flags, &change, sizeof change) < 0) {
    throw_errno("restricting a mount");
  }
}

}  // namespace

UniqueFd clone_tree(int opened) {
  UniqueFd tree(open_tree(
      opened, "",
      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | unsigned{AT_RECURSIVE} | unsigned{AT_EMPTY_PATH}));
  if (!tree) throw_errno("cloning the mount of an open file");
  return tree;
}

void restrict_tree(int tree, const MountAttributes& attributes) {
  add_attributes(tree, attributes, AT_RECURSIVE);
}

void restrict_mount(int mount, const MountAttributes& attributes) {
  add_attributes(mount, attributes, 0);
}

void attach(int tree, int directory, const char* path) {
  if (move_mount(tree, "", directory, path, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS) < 0) {
    throw_errno(std::string("mounting at ") + path);
  }
}

void attach_unlinked(int tree, int directory, const char* path) {
  if (move_mount(tree, "", directory, path, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
    throw_errno(std::string("mounting at ") + path);
  }
}

void bind(int source_directory, const char* source, int target_directory, const char* target) {
  const UniqueFd tree = clone_tree(source_directory, source);
  attach(tree.get(), target_directory, target);
}

void make_all_private() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
    throw_errno("making the mounts private");
  }
}

void make_all_slave() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) < 0) {
    throw_errno("making the mounts followers");
  }
}

void share_mount(const char* path) {
  if (mount(nullptr, path, nullptr, MS_SHARED, nullptr) < 0) {
    throw_errno(std::string("sharing the mount at ") + path);
  }
}

void unshare_mount(const char* path) {
  if (mount(nullptr, path, nullptr, MS_PRIVATE, nullptr) < 0) {
    throw_errno(std::string("making private the mount at ") + path);
  }
}

void replace_root(int new_root) {
  if (fchdir(new_root) < 0) throw_errno("entering the new root");
  // Both names the same: the old root lies over the new one afterwards and is detached from there.
  if (syscall(SYS_pivot_root, ".", ".") < 0) throw_errno("replacing the root");
  if (umount2(".", MNT_DETACH) < 0) throw_errno("dropping the old root");
  if (chdir("/") < 0) throw_errno("entering the new root");
}

void detach(const char* path) {
  if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0) {
    throw_errno(std::string("detaching ") + path);
  }
}

}  // namespace casemate::sys
