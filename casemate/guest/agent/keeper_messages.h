#pragma once

// What a backend of the host and its keeper say to each other, one message a packet. Both ends are
// the same build (the host started this very program), so plain values travel as they lie in
// memory; both check sizes and that texts end.

#include <cstddef>
#include <cstdint>
#include <string>

namespace casemate::guest {

// A run of user or group ids.
struct IdRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const IdRange&, const IdRange&) = default;
};

// What /etc/subuid and /etc/subgid give the user, for newuidmap and newgidmap.
struct SubordinateIds {
  IdRange users;
  IdRange groups;
  friend bool operator==(const SubordinateIds&, const SubordinateIds&) = default;
};

// As the keeper is told them on its command line.
inline std::string encode(const SubordinateIds& ids) {
  return std::to_string(ids.users.first) + ":" + std::to_string(ids.users.count) + ":" +
         std::to_string(ids.groups.first) + ":" + std::to_string(ids.groups.count);
}

inline constexpr std::size_t kMaxControlGroups = 12;
inline constexpr std::size_t kControlGroupPathBytes = 256;

// Asks for one sandbox. Descriptors that come with it: the sandbox's own state directory (O_PATH),
// the sandbox's end of a connection that is its first lease, then, with `has_image`, the image's
// root directory (the agent keeps that descriptor, and with it the lock it carries, as long as it
// lives), then, of each group that the agent shall live in, the open file by which it joins (see
// `Place`), the same of the `bounded_groups` in which a sandbox with a kernel of its own lives as a
// whole, and with `has_program_group` the three files of a `ProgramGroup`.
struct CreateSandbox {
  // Repeated in the answer. Above 0.
  std::uint64_t number;
  char id[24];
  // Absolute path inside of the directory that calls get theirs under.
  char work_dir[256];
  std::uint32_t control_groups;
  // 0: the machine's own programs, image `host`.
  std::uint32_t has_image;
  std::uint32_t bounded_groups;
  // Who makes the sandbox counts its programs in a group of their own, which is nobody's to remove.
  std::uint32_t has_program_group;
  // Absolute paths of the sandbox's control groups, to be removed at its end.
  char control_group_paths[kMaxControlGroups][kControlGroupPathBytes];
  // What the first lease wishes, as in `LeaseRequest`.
  std::uint64_t keep_idle_ms;
  std::uint64_t disk_bytes;
  std::uint64_t disk_inodes;
  // Resource limits of the programs; 0 leaves the keeper's own, the highest it may have.
  std::uint64_t open_files;
  std::uint64_t processes;
  std::uint64_t cpu_seconds;
};

// Says that nobody wants the sandbox of an earlier request any more, made or in the making. Told
// apart by its size.
struct GiveUpSandbox {
  std::uint64_t number;
};
static_assert(sizeof(GiveUpSandbox) != sizeof(CreateSandbox));

// The answer to one request. One that was given up has another, last answer: ECANCELED, when
// nothing of the sandbox exists any more.
struct KeeperAnswer {
  // 0: the keeper could not begin, and ends.
  std::uint64_t number;
  // 0, or the errno of what failed. ESRCH: what was to become the sandbox ended before it was
  // ready, so that no program has run in it.
  std::int32_t error;
  // What failed, for a person; without an error, whose user ids the sandbox has, and what the
  // keeper does without.
  char text[508];
};

// Where the directories of published sandboxes are, in the state directory. One that is anywhere
// else when its host goes was never handed out.
inline constexpr char kPublishedName[] = "sandboxes";

// The names inside a sandbox's state directory.
inline constexpr char kAgentSocketName[] = "agent.sock";
inline constexpr char kLeaseSocketName[] = "lease.sock";
inline constexpr char kBusyLockName[] = "busy.lock";
inline constexpr char kRecordName[] = "record.json";
// What becomes it, while it is being written.
inline constexpr char kNextRecordName[] = "record.next";

// What a container's runtime is told (guest/agent/container_config.h).
inline constexpr char kContainerConfigName[] = "config.json";
// How a virtual machine is started (guest/machine/machine_plan.h).
inline constexpr char kMachinePlanName[] = "machine";

// What a connection to the lease socket says to become a lease, and again, then without an answer,
// to change its mind. One that says nothing (a listing that only looks whether somebody listens)
// counts for nothing. As it lies in memory, like all that a host and its own guest program say.
struct LeaseRequest {
  char type;
  char reserved[7];
  // How long the sandbox waits for its next user when this lease is the last to close.
  std::uint64_t keep_idle_ms;
};
inline constexpr char kLeaseRequest = 'l';
// Leaves what an earlier lease wished.
inline constexpr std::uint64_t kNoWish = ~std::uint64_t{0};
// The agent's answer.
inline constexpr char kLeaseGranted = 'g';

}  // namespace casemate::guest
