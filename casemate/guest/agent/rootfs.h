#pragma once

#include <cstdint>
#include <string>

namespace casemate::guest {

// What a sandbox's root is made with.
struct RootPlan {
  // Absolute; made if it is not there.
  std::string work_dir;
  std::uint64_t disk_bytes = 0;
  std::uint64_t disk_inodes = 0;
};

// Where the one file system that programs can write to is mounted for the agent. A call detaches
// it from its own mount namespace once it has bound what is its own.
inline constexpr char kQuotaDirectory[] = "/.quota";

// The program's user inside.
inline constexpr unsigned kUserId = 1000;

// Builds the root of the image `host` and makes it this process's root: a read-only view of the
// machine's /usr with the links and the few files of /etc that programs need, own /dev and /proc,
// nothing of /home, /root, /var, /run, /opt, /srv, /mnt; /sys is absent. Writable are the work
// directory and the home directory, which lie on one tmpfs bounded by the plan.
//
// The caller is user 0 of a user namespace that owns its mount and pid namespaces and has umask 0.
// Throws `std::system_error`. Does not protect what the machine keeps readable for everybody in
// /usr and in the files of /etc named in rootfs.cc.
void build_root(const RootPlan& plan);

}  // namespace casemate::guest
